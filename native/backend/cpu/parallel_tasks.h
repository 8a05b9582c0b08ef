// parallel_tasks.h: tasks that take some time each and need memory of their own.
#pragma once

#include "backend/cpu/scratch.h"
#include "core/shares.h"
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
  Shares shares(count, workers);
  const auto run = [&](int64_t first, int64_t last) {
    try {
      for (int64_t worker = first; worker < last; ++worker) {
        for (int64_t index, end; shares.claim(worker, index, end, 1);)
          body(index, workspaces.data() + worker * floats);
      }
    } catch (...) {
      shares.finish();
      throw;
    }
  };
  parallel_for(workers, 1, run, grains > count ? grains : count);
}

}  // namespace spark::cpu
