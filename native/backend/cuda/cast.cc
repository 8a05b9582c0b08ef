#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRun = 16;  // elements of a thread, as in kernels/elements.cuh

}  // namespace

void cast(const CastArgs& args) {
  if (args.src_dtype > DType::kF8E5M2 || args.dst_dtype > DType::kF8E5M2 || args.bits) {
    throw Error("ERR_UNSUPPORTED", message("the cuda backend has no kernel for a cast from ",
                                           dtype_name(args.src_dtype), " to ", dtype_name(args.dst_dtype)));
  }
  const std::string kernel =
      std::string("cast_") + dtype_name(args.src_dtype) + "_" + dtype_name(args.dst_dtype);
  launch("cast", kernel, Grid{ceil_div(args.count, kThreads * kRun)}, Threads{kThreads}, 0, args.src,
         args.dst, args.count, args.saturate);
}

}  // namespace spark::cuda
