// bytes.cc: launchers of casts between f32 and quantized bytes, and of operations on quantized bytes.
#include <algorithm>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"
#include "kernels/quantize/blocks.h"

namespace spark::cuda {
namespace {

template <typename Args>
void launch_affine(const char* of_all, const char* of_channels, const Args& args) {
  using namespace affine_block;
  constexpr int64_t kElements = kThreads * kVectors * kLength;
  const int64_t count = args.outer * args.channels * args.inner;
  launch("bytes", args.channels == 1 ? of_all : of_channels, Grid{ceil_div(count, kElements)},
         Threads{kThreads}, 0, args);
}

}  // namespace

void quantize(const QuantizeArgs& args) { launch_affine("quantize_bytes", "quantize_bytes_channels", args); }

void dequantize(const DequantizeArgs& args) {
  launch_affine("dequantize_bytes", "dequantize_bytes_channels", args);
}

void lookup(const LookupArgs& args) {
  using namespace lookup_block;
  static_assert(kThreads == 256, "each thread loads an entry of the table");
  launch("bytes", "lookup_bytes", Grid{ceil_div(args.count, kThreads * kVectors * kRun)}, Threads{kThreads},
         0, args);
}

void binary_bytes(const BinaryBytesArgs& args) {
  using namespace binary_bytes_block;
  launch("bytes", args.fn == BytesFn::kAdd ? "binary_bytes_add" : "binary_bytes_mul",
         Grid{ceil_div(args.count, kThreads * kRun)}, Threads{kThreads}, 0, args);
}

void mean_bytes(const MeanBytesArgs& args) {
  using namespace mean_bytes_block;
  const Threads threads{kThreads};
  if (args.cols <= kOfWarp) {
    launch("bytes", "mean_bytes", Grid{ceil_div(args.rows, kRows)}, threads, 0, args);
    return;
  }
  const int64_t wanted = std::max<int64_t>(kMaxBlocks / std::max<int64_t>(args.rows, 1), 1);
  const int64_t cut = std::clamp(wanted, ceil_div(args.cols, kLongest), ceil_div(args.cols, kPart));
  const int64_t size = ceil_div(args.cols, cut), parts = ceil_div(args.cols, size);
  const Scratch partial(args.rows * parts * sizeof(int64_t));
  int64_t* sums = partial.as<int64_t>();
  launch("bytes", "mean_bytes_parts", Grid{args.rows * parts}, threads, 0, args, parts, size, sums);
  launch("bytes", "mean_bytes_finish", Grid{ceil_div(args.rows, kThreads)}, threads, 0, args, parts,
         static_cast<const int64_t*>(sums));
}

}  // namespace spark::cuda
