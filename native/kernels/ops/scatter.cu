// scatter.cu: y[offset(i)] = fn(y[offset(i)], updates[i]) in row-major order of i. One thread per lane of
// indices whose targets no other lane reaches: it takes their turns in order, those from `begin` to `end` in
// a launch, so that targets may repeat and the result is that of a single thread. An index out of range is
// passed over: a kernel cannot throw. Reference: native/backend/cpu/ops/indexed.cc; what is combined is
// shared (backend/binary_functions.h)
#include "backend/binary_functions.h"
#include "kernels/ops/indexed.cuh"
#include "kernels/ops/scatter_args.h"

namespace spark {
namespace {

// Where the loops are, before indices are looked up.
struct Offsets {
  int64_t target, indices, updates;

  __device__ void move(const ScatterAxes& loop, int64_t position) {
    at_position(loop.axes, position, [&](int64_t axis, int64_t index) {
      target += index * loop.target.step[axis];
      indices += index * loop.indices.step[axis];
      updates += index * loop.updates.step[axis];
    });
  }
};

template <typename V>
__device__ void scatter(const ScatterArgs& args, const ScatterLoops& loops, int64_t begin, int64_t end) {
  const int64_t lane = thread_index();
  if (lane >= numel(loops.lanes.axes)) return;
  Offsets first{};
  first.move(loops.lanes, lane);
  for (int64_t turn = begin; turn < end; ++turn) {
    Offsets at = first;
    at.move(loops.turns, turn);
    const int64_t to = offset_from(args.indexing, at.target, at.indices);
    if (to < 0) continue;
    const V old = load_element<V>(args.dtype, args.y, to);
    const V update = load_element<V>(args.dtype, args.updates, at.updates);
    store_element(args.dtype, scattered(args.fn, old, update), args.y, to);
  }
}

}  // namespace
}  // namespace spark

#define SPARK_NUMBER(name, V)                                                                   \
  extern "C" __global__ void scatter_##name(spark::ScatterArgs args, spark::ScatterLoops loops, \
                                            int64_t begin, int64_t end) {                       \
    spark::scatter<V>(args, loops, begin, end);                                                 \
  }
SPARK_FOR_EACH_NUMBER(SPARK_NUMBER)
