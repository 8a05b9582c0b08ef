// thread_pool.h: one pool of workers per process for CPU kernels. A worker that has run out of work spins for
// a moment before it sleeps on a condition variable: the steps of a plan follow each other within
// microseconds, waking a thread takes tens of them.
#pragma once

#include <cstdint>

#include "core/function_ref.h"

namespace spark {

// Threads a kernel may use, the calling one included; 0: one per core. Set once from DGX_SPARK_THREADS.
void set_thread_count(int threads);

// Cores that the process may keep busy; by default those of the machine. Where more threads than that are
// awake none of them spins.
void set_core_count(int cores);

// Threads that a kernel which is called now may use.
int thread_count();

// While it lives, kernels that the calling thread calls may use so many threads; 0: as many as without it.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

// Calls body(begin, end) over disjoint ranges that cover [0, count), each of whole grains except the last,
// and returns when all are done. Ranges get shorter towards the end; who computes which is left to chance.
// When a body throws, ranges that nobody has begun are left out, and the first exception is rethrown here
// once no thread is in a body any more. A body's own parallel_for runs on its thread alone. Calls from
// several threads share the workers and never wait for each other: a caller that gets none does all on its
// own, as does one with a limit of one thread. Threads that the machine refuses to start are done without.
// Threads that sleep are woken for a few grains; `grains` says how many there are where that is more than
// count / grain.
void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body,
                  int64_t grains = 0);

}  // namespace spark
