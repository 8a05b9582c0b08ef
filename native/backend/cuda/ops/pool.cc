// pool.cc: launchers of pooling and resampling.
#include "backend/cuda/cuda.h"
#include "backend/cuda/ops/strided.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

void expect_f32(DType dtype) {
  if (dtype != DType::kF32) {
    throw Error("ERR_UNSUPPORTED", message("the cuda backend has no kernel for pool in ", dtype_name(dtype)));
  }
}

int64_t elements(int64_t planes, const int64_t (&sizes)[3]) {
  return planes * sizes[0] * sizes[1] * sizes[2];
}

}  // namespace

void pool(const PoolArgs& args) {
  const bool bytes = args.dtype == DType::kU8 || args.dtype == DType::kI8;
  if (!bytes || args.fn != PoolFn::kMax || args.indices) expect_f32(args.dtype);
  launch("pool", std::string("pool_") + dtype_name(args.dtype),
         threads_for(elements(args.windows.planes, args.windows.out)), Threads{kViewThreads}, 0, args);
}

void pool_backward(const PoolBackwardArgs& args) {
  expect_f32(args.dtype);
  const int64_t outputs = elements(args.windows.planes, args.windows.out);
  const Scratch largest(args.fn == PoolFn::kMax ? outputs * sizeof(int64_t) : 0);
  if (args.fn == PoolFn::kMax) {
    launch("pool", "pool_largest_f32", threads_for(outputs), Threads{kViewThreads}, 0, args,
           largest.as<int64_t>());
  }
  launch("pool", "pool_backward_f32", threads_for(elements(args.windows.planes, args.windows.image)),
         Threads{kViewThreads}, 0, args, largest.as<const int64_t>());
}

void resample(const ResampleArgs& args) {
  launch("pool", "resample_f32", threads_for(args.outer * args.out * args.inner), Threads{kViewThreads}, 0,
         args);
}

}  // namespace spark::cuda
