// fp8.cc: launchers of FP8 quantization.
#include <algorithm>
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"
#include "kernels/quantize/blocks.h"

namespace spark::cuda {
namespace {

using fp8_block::kThreads;
constexpr int64_t kPartElements = 16 << 10;  // 64 a thread: enough to hide the maximum of a block of threads
constexpr int64_t kMaxBlocks = 2048;         // several per multiprocessor on every GPU

}  // namespace

void fp8_quantize(const Fp8QuantizeArgs& args) {
  const int64_t blocks = ceil_div(args.rows, args.block_rows) * ceil_div(args.cols, args.block_cols);
  const std::string dtype = dtype_name(args.src_dtype);
  const int64_t elements = std::min(args.rows, args.block_rows) * std::min(args.cols, args.block_cols);
  const int64_t parts =
      blocks == 0 ? 1
                  : std::min(ceil_div(elements, kPartElements), std::max<int64_t>(1, kMaxBlocks / blocks));
  if (parts <= 1) {
    launch("fp8", "fp8_quantize_" + dtype, Grid{blocks}, Threads{kThreads}, 0, args.src, args.rows, args.cols,
           args.block_rows, args.block_cols, args.codes, args.scale);
    return;
  }
  const Scratch partial(blocks * parts * sizeof(uint32_t));
  launch("fp8", "fp8_amax_" + dtype, Grid{blocks * parts}, Threads{kThreads}, 0, args.src, args.rows,
         args.cols, args.block_rows, args.block_cols, parts, partial.as<uint32_t>());
  launch("fp8", "fp8_codes_" + dtype, Grid{blocks * parts}, Threads{kThreads}, 0, args.src, args.rows,
         args.cols, args.block_rows, args.block_cols, parts, partial.as<const uint32_t>(), args.codes,
         args.scale);
}

}  // namespace spark::cuda
