// thread_pool.h: one pool of workers per process for CPU kernels. Idle workers sleep on a condition variable.
#pragma once

#include <cstdint>
#include <functional>

namespace spark {

// Threads a kernel may use, the calling one included. Set once from DGX_SPARK_THREADS; 0 means one per core.
void set_thread_count(int threads);
int thread_count();

// Calls body(begin, end) over disjoint ranges that cover [0, count), each at least `grain` long except the
// last, and returns when all are done. `body` must not throw and must not call parallel_for. Calls from
// several threads take turns.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace spark
