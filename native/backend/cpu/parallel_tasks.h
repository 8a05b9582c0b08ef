// parallel_tasks.h: tasks that take some time each and need memory of their own.
#pragma once

#include <atomic>

#include "backend/cpu/scratch.h"
#include "core/thread_pool.h"

namespace spark::cpu {

// body(index, workspace) for each index below count, spread over threads. `workspace` has `floats` elements,
// which hold anything. Allocates before it starts. A task is a grain of parallel_for at least. When a body
// throws, tasks that nobody has begun are left out.
template <typename Body>
void parallel_tasks(int64_t count, int64_t floats, const Body& body, int64_t grains = 0) {
  if (count <= 0) return;
  const int64_t workers = count < thread_count() ? count : thread_count();
  const Scratch workspaces(workers * floats);
  std::atomic<int64_t> next = 0;
  // However a worker ends, there is nothing left to begin.
  struct End {
    std::atomic<int64_t>& next;
    const int64_t count;
    ~End() { next = count; }
  };
  const auto run = [&](int64_t begin, int64_t end) {
    const End at_end{next, count};
    for (int64_t worker = begin; worker < end; ++worker) {
      for (int64_t index = next++; index < count; index = next++)
        body(index, workspaces.data() + worker * floats);
    }
  };
  parallel_for(workers, 1, run, grains > count ? grains : count);
}

}  // namespace spark::cpu
