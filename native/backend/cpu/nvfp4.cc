#include "backend/cpu/cpu.h"
#include "backend/cpu/formats.h"
#include "backend/cpu/precision_loops.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1024;  // blocks a thread takes at a time

}  // namespace

// A block never crosses the end of a row, so a matrix is one run of blocks.

void nvfp4_quantize(const Nvfp4QuantizeArgs& args) {
  check_wide_format("nvfp4_quantize", args.src_dtype);
  parallel_for(args.rows * args.cols / kNvfp4Block, kGrain,
               [&](int64_t begin, int64_t end) { precision_loops().nvfp4_quantize(args, begin, end); });
}

void nvfp4_dequantize(const Nvfp4DequantizeArgs& args) {
  parallel_for(args.rows * args.cols / kNvfp4Block, kGrain,
               [&](int64_t begin, int64_t end) { precision_loops().nvfp4_dequantize(args, begin, end); });
}

}  // namespace spark::cpu
