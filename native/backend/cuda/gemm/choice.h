// choice.h: the faster of two ways to form a product, measured on the device once for each shape.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/gemm/product_args.h"

namespace spark::cuda {

// Two ways to enqueue the same work: sums [rows, cols] and what `to` makes of them.
struct Ways {
  std::string key;  // names the work
  int64_t rows, cols;
  Epilogue to;
  std::function<void(const Epilogue& to)> own;
  std::function<bool(const Epilogue& to)> other;  // false where it cannot; it is not asked again
};

// Enqueues the faster way on the stream of the current device. The first call with a key in the process tries
// both, with results in memory of its own: each once to load kernels, then some times between two events. In
// a plan's eager pass it waits for the times, so that the plan stores what the same way made at each of its
// runs; a call of its own never waits and is `own` until the device has passed the trial. While work is
// captured nothing is tried.
void enqueue_faster(const Ways& ways);

}  // namespace spark::cuda
