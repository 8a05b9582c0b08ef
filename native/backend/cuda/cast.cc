#include <algorithm>
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"

namespace spark::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // of a thread, as in kernels/cast.cu

// Elements of a vector: 16 bytes of the wider format.
int64_t vector_length(const CastArgs& args) {
  return 128 / std::max(dtype_bits(args.src_dtype), dtype_bits(args.dst_dtype));
}

}  // namespace

void cast(const CastArgs& args) {
  const std::string kernel =
      std::string("cast_") + dtype_name(args.src_dtype) + "_" + dtype_name(args.dst_dtype);
  launch("cast", kernel, Grid{ceil_div(args.count, kThreads * kVectors * vector_length(args))},
         Threads{kThreads}, 0, args.src, args.dst, args.count, args.saturate);
}

}  // namespace spark::cuda
