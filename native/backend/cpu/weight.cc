#include "backend/cpu/weight.h"

#include <algorithm>

#include "backend/cpu/cpu.h"
#include "core/float_formats.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// Format::decode without branches, so that loops vectorise: the exponent is moved by a multiplication, which
// also makes subnormals normal. A NaN may have another payload.
template <typename Format>
float widen(uint32_t code) {
  constexpr uint32_t kMagnitude = (1u << Format::kSignShift) - 1;
  const uint32_t magnitude = code & kMagnitude;
  const uint32_t special = magnitude > Format::limit(true) ? kInfinityBits : 0;
  const uint32_t sign = (code & ~kMagnitude) << (31 - Format::kSignShift);
  const uint32_t bits =
      float_bits(bits_float(magnitude << Format::kShift) * bits_float((127 + Format::kExponentGap) << 23));
  return bits_float(bits | special | sign);
}

template <typename Format>
void decode_codes(const Weight& weight, int64_t first, int64_t count, float* dst) {
  const auto* codes = static_cast<const typename Format::Code*>(weight.data) + first;
  for (int64_t j = 0; j < count; ++j) dst[j] = widen<Format>(codes[j]);
}

void decode_nvfp4(const Weight& weight, int64_t first, int64_t count, float* dst) {
  constexpr float kElements[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  const auto* packed = static_cast<const uint8_t*>(weight.data) + first / 2;
  const uint8_t* block_scale = weight.block_scale + first / 16;
  for (int64_t block = 0; block < count / 16; ++block) {
    const float scale = E4M3::decode(block_scale[block]) * weight.tensor_scale;
    for (int64_t j = block * 8; j < block * 8 + 8; ++j) {
      dst[2 * j] = kElements[packed[j] & 15] * scale;
      dst[2 * j + 1] = kElements[packed[j] >> 4] * scale;
    }
  }
}

}  // namespace

void decode(const Weight& weight, int64_t row, int64_t col, int64_t count, float* dst) {
  const int64_t first = row * weight.cols + col;
  switch (weight.dtype) {
    case DType::kF32:
      std::copy_n(static_cast<const float*>(weight.data) + first, count, dst);
      return;
    case DType::kF16:
      return decode_codes<F16>(weight, first, count, dst);
    case DType::kBF16:
      return decode_codes<BF16>(weight, first, count, dst);
    case DType::kF8E4M3:
      decode_codes<E4M3>(weight, first, count, dst);
      for (int64_t j = 0; j < count; ++j) dst[j] *= weight.row_scale[row];
      return;
    case DType::kNVFP4:
      return decode_nvfp4(weight, first, count, dst);
    case DType::kF8E5M2:
      return;  // no weight is stored so: napi/arguments.cc refuses it
  }
}

void weight_norm2(const WeightNorm2Args& args) {
  constexpr int64_t kPiece = 256;
  const int64_t cols = args.weight.cols;
  const int64_t grain = 1 + (1 << 16) / (cols + 1);
  parallel_for(args.weight.rows, grain, [&](int64_t begin, int64_t end) {
    float piece[kPiece];
    for (int64_t row = begin; row < end; ++row) {
      double sum = 0;
      for (int64_t col = 0; col < cols; col += kPiece) {
        const int64_t count = std::min(kPiece, cols - col);
        decode(args.weight, row, col, count, piece);
        for (int64_t j = 0; j < count; ++j) sum += static_cast<double>(piece[j]) * piece[j];
      }
      args.out[row] = static_cast<float>(sum);
    }
  });
}

}  // namespace spark::cpu
