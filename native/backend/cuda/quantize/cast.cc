// cast.cc: launchers of casts.
#include <algorithm>
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/ops/strided.h"
#include "kernels/quantize/blocks.h"

namespace spark::cuda {
namespace {

constexpr int kThreads = 256;

// Elements of a vector.
int64_t vector_length(const CastArgs& args) {
  return cast_block::kVectorBytes * 8 / std::max(dtype_bits(args.src_dtype), dtype_bits(args.dst_dtype));
}

// The bits of elements of one size.
void copy_bits(const CastArgs& args) {
  CopyStridedArgs copy{};
  copy.dtype = args.src_dtype;
  copy.shape = {1, {args.count}};
  copy.src_strides = copy.dst_strides = {{1}};
  copy.src = args.src;
  copy.dst = args.dst;
  copy_strided(copy);
}

}  // namespace

void cast(const CastArgs& args) {
  if (args.bits) return copy_bits(args);
  if (args.src_dtype > DType::kF8E5M2 || args.dst_dtype > DType::kF8E5M2) {
    kernel_of_number("convert", args.dst_dtype);  // refuses what has no elements
    launch("elementwise", kernel_of_number("convert", args.src_dtype), threads_for(args.count),
           Threads{kViewThreads}, 0, args);
    return;
  }
  const std::string kernel =
      std::string("cast_") + dtype_name(args.src_dtype) + "_" + dtype_name(args.dst_dtype);
  launch("cast", kernel, Grid{ceil_div(args.count, kThreads * cast_block::kVectors * vector_length(args))},
         Threads{kThreads}, 0, args.src, args.dst, args.count, args.saturate);
}

}  // namespace spark::cuda
