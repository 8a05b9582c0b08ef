#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu.h"
#include "backend/cpu/formats.h"
#include "core/quantizers.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1024;  // blocks a thread takes at a time

template <typename Src>
void quantize_block(const typename Src::Code* src, float tensor_scale, uint8_t* packed,
                    uint8_t* block_scale) {
  float values[kNvfp4Block], amax = 0;
  for (int i = 0; i < kNvfp4Block; ++i) values[i] = Src::decode(src[i]);
  for (float value : values) amax = std::max(amax, std::fabs(value));
  *block_scale = nvfp4_block_scale(amax, tensor_scale);
  const float step = nvfp4_step(*block_scale, tensor_scale);
  uint8_t codes[kNvfp4Block];
  for (int i = 0; i < kNvfp4Block; ++i) codes[i] = nvfp4_code(values[i], step);
  for (int i = 0; i < kNvfp4Block / 2; ++i) {
    packed[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}

}  // namespace

// A block never crosses the end of a row, so a matrix is one run of blocks.

void nvfp4_quantize(const Nvfp4QuantizeArgs& args) {
  with_wide_format("nvfp4_quantize", args.src_dtype, [&](auto format) {
    using Src = decltype(format);
    const auto* src = static_cast<const typename Src::Code*>(args.src);
    parallel_for(args.rows * args.cols / kNvfp4Block, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        quantize_block<Src>(src + i * kNvfp4Block, args.tensor_scale, args.packed + i * kNvfp4Block / 2,
                            args.block_scale + i);
      }
    });
  });
}

void nvfp4_dequantize(const Nvfp4DequantizeArgs& args) {
  parallel_for(args.rows * args.cols / kNvfp4Block, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float step = nvfp4_step(args.block_scale[i], args.tensor_scale);
      const uint8_t* packed = args.packed + i * kNvfp4Block / 2;
      float* dst = args.dst + i * kNvfp4Block;
      for (int j = 0; j < kNvfp4Block / 2; ++j) {
        dst[2 * j] = nvfp4_value(packed[j] & 15, step);
        dst[2 * j + 1] = nvfp4_value(packed[j] >> 4, step);
      }
    }
  });
}

}  // namespace spark::cpu
