// scatter.cc: launchers of scatter, parallel where indices cannot collide.
#include <algorithm>
#include <utility>
#include <vector>

#include "backend/cuda/cuda.h"
#include "backend/cuda/ops/strided.h"
#include "kernels/ops/scatter_args.h"

namespace spark::cuda {
namespace {

// Whether targets differ wherever the steps of the walk or the indices do: each step is longer than all
// shorter ones reach together.
bool distinct(const Indexing& indexing) {
  std::vector<std::pair<int64_t, int64_t>> steps;  // and how many
  for (int64_t i = 0; i < indexing.shape.count; ++i) {
    steps.emplace_back(indexing.strides.step[i], indexing.shape.size[i]);
  }
  for (int64_t d = 0; d < indexing.components; ++d) steps.emplace_back(indexing.steps[d], indexing.limits[d]);
  std::sort(steps.begin(), steps.end());
  int64_t reach = 0;
  for (const auto& [step, count] : steps) {
    if (step == 0 || count == 1) continue;
    if (step <= reach) return false;
    reach += (count - 1) * step;
  }
  return true;
}

void append(ScatterAxes& loop, const Indexing& indexing, int64_t axis, int64_t updates) {
  const int64_t i = loop.axes.count++;
  loop.axes.size[i] = indexing.shape.size[axis];
  loop.target.step[i] = indexing.strides.step[axis];
  loop.indices.step[i] = indexing.index_strides.step[axis];
  loop.updates.step[i] = updates;
}

// Updates that differ along an axis of the walk have different targets if those are distinct at all.
ScatterLoops loops_over(const Indexing& indexing) {
  const bool apart = distinct(indexing);
  ScatterLoops loops{};
  int64_t updates = numel(indexing.shape);
  for (int64_t axis = 0; axis < indexing.shape.count; ++axis) {
    updates /= indexing.shape.size[axis];
    append(apart && indexing.strides.step[axis] != 0 ? loops.lanes : loops.turns, indexing, axis, updates);
  }
  return loops;
}

}  // namespace

void scatter(const ScatterArgs& args) {
  if (numel(args.indexing.shape) == 0) return;
  const ScatterLoops loops = loops_over(args.indexing);
  launch_in_pieces(numel(loops.turns.axes), 1, [&](int64_t begin, int64_t end) {
    launch("scatter", kernel_of_number("scatter", args.dtype), threads_for(numel(loops.lanes.axes)),
           Threads{kViewThreads}, 0, args, loops, begin, end);
  });
}

}  // namespace spark::cuda
