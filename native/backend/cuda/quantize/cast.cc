// cast.cc: launchers of casts.
#include <algorithm>
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/ops/strided.h"
#include "kernels/quantize/blocks.h"

namespace spark::cuda {
namespace {

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
  using namespace cast_block;
  if (args.bits) return copy_bits(args);
  if (args.src_dtype > DType::kF8E5M2 || args.dst_dtype > DType::kF8E5M2) {
    kernel_of_number("convert", args.dst_dtype);  // refuses what has no elements
    launch("elementwise", kernel_of_number("convert", args.src_dtype), threads_sharing(args.count),
           Threads{kViewThreads}, 0, args);
    return;
  }
  const std::string kernel =
      std::string("cast_") + dtype_name(args.src_dtype) + "_" + dtype_name(args.dst_dtype);
  const size_t bits = std::max<size_t>({dtype_bits(args.src_dtype), dtype_bits(args.dst_dtype), kFewestBits});
  const int64_t elements = kVectorBits / bits * kVectors * kThreads;
  launch("cast", kernel, Grid{ceil_div(args.count, elements)}, Threads{kThreads}, 0, args.src, args.dst,
         args.count, args.saturate);
}

}  // namespace spark::cuda
