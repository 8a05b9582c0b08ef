// fp8.cc: quantization to FP8 with scales per tensor or block.
#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/cpu/quantize/formats.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements a thread takes at a time

int64_t ceil_div(int64_t count, int64_t size) { return count / size + (count % size != 0); }

// The block of `args` whose scale is scale[index].
void quantize_block(const Fp8QuantizeArgs& args, int64_t index) {
  const PrecisionKernels& loops = kernels().precision;
  const int64_t across = ceil_div(args.cols, args.block_cols);
  const int64_t top = index / across * args.block_rows, left = index % across * args.block_cols;
  const int64_t bottom = top + std::min(args.block_rows, args.rows - top);
  const int64_t width = std::min(args.block_cols, args.cols - left);
  const int64_t bytes = dtype_bits(args.src_dtype) / 8;
  const auto* src = static_cast<const uint8_t*>(args.src) + left * bytes;
  const int64_t pitch = args.cols;
  float amax = 0;
  for (int64_t r = top; r < bottom; ++r) {
    amax = std::max(amax, loops.amax(args.src_dtype, src + r * pitch * bytes, width));
  }
  const float scale = args.scale[index] = fp8_scale(amax);
  for (int64_t r = top; r < bottom; ++r) {
    loops.fp8_codes(args.src_dtype, src + r * pitch * bytes, width, scale, args.codes + r * pitch + left);
  }
}

// One block is everything: its elements are spread over the threads.
void quantize_whole(const Fp8QuantizeArgs& args) {
  float largest;
  amax({args.src_dtype, args.rows * args.cols, args.src, &largest});
  const float scale = args.scale[0] = fp8_scale(largest);
  const int64_t bytes = dtype_bits(args.src_dtype) / 8;
  const auto* src = static_cast<const uint8_t*>(args.src);
  parallel_for(args.rows * args.cols, kGrain, [&](int64_t begin, int64_t end) {
    kernels().precision.fp8_codes(args.src_dtype, src + begin * bytes, end - begin, scale,
                                  args.codes + begin);
  });
}

}  // namespace

void fp8_quantize(const Fp8QuantizeArgs& args) {
  check_wide_format("fp8_quantize", args.src_dtype);
  const int64_t down = ceil_div(args.rows, args.block_rows);
  const int64_t across = ceil_div(args.cols, args.block_cols);
  if (down * across == 1) return quantize_whole(args);
  const int64_t in_block = std::min(args.block_rows, args.rows) * std::min(args.block_cols, args.cols);
  parallel_for(down * across, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, in_block)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) quantize_block(args, i);
               });
}

}  // namespace spark::cpu
