// thread_pool.h: one pool of workers per process for CPU kernels. A worker that has run out of work watches
// for more for a moment before it sleeps on a condition variable: the steps of a plan follow each other
// within microseconds, waking a thread takes tens of them.
#pragma once

#include <cstdint>

#include "core/function_ref.h"

namespace spark {

// Threads a kernel may use, the calling one included. Set once from DGX_SPARK_THREADS; 0 means one per core.
void set_thread_count(int threads);

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

// Calls body(begin, end) over disjoint ranges that cover [0, count), each at least `grain` long except the
// last, and returns when all are done. When a body throws, ranges that nobody has begun are left out, and the
// first exception is rethrown here once no thread is in a body any more. A body's own parallel_for runs on
// its thread alone. Calls from several threads take turns; within an Undelayed scope a call that would have
// to wait does all on its own. Threads that the machine refuses to start are done without. Threads that sleep
// are woken for a few grains; `grains` says how many there are where that is more than count / grain.
void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body,
                  int64_t grains = 0);

// While it lives, the calling thread does not wait for parallel_for calls of other threads.
class Undelayed {
 public:
  Undelayed();
  ~Undelayed();
  Undelayed(const Undelayed&) = delete;
  Undelayed& operator=(const Undelayed&) = delete;
};

}  // namespace spark
