#include "backend/cpu/weight.h"

#include <cmath>
#include <cstring>

#include "backend/cpu/cpu.h"
#include "core/float_formats.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

void decode_f8(const Weight& weight, int64_t row, int64_t first, int64_t count, float* dst) {
  const auto* codes = static_cast<const uint8_t*>(weight.data) + first;
  const float scale = weight.row_scale[row];
  for (int64_t j = 0; j < count; ++j) dst[j] = e4m3_to_f32(codes[j]) * scale;
}

void decode_nvfp4(const Weight& weight, int64_t first, int64_t count, float* dst) {
  const auto* packed = static_cast<const uint8_t*>(weight.data) + first / 2;
  const uint8_t* block_scale = weight.block_scale + first / 16;
  for (int64_t block = 0; block < count / 16; ++block) {
    const float scale = e4m3_to_f32(block_scale[block]) * weight.tensor_scale;
    for (int64_t j = block * 8; j < block * 8 + 8; ++j) {
      dst[2 * j] = e2m1_to_f32(packed[j] & 15) * scale;
      dst[2 * j + 1] = e2m1_to_f32(packed[j] >> 4) * scale;
    }
  }
}

}  // namespace

void decode(const Weight& weight, int64_t row, int64_t col, int64_t count, float* dst) {
  const int64_t first = row * weight.cols + col;
  switch (weight.dtype) {
    case DType::kF32:
      std::memcpy(dst, static_cast<const float*>(weight.data) + first, count * sizeof(float));
      return;
    case DType::kF16: {
      const auto* bits = static_cast<const uint16_t*>(weight.data) + first;
      for (int64_t j = 0; j < count; ++j) dst[j] = f16_to_f32(bits[j]);
      return;
    }
    case DType::kBF16: {
      const auto* bits = static_cast<const uint16_t*>(weight.data) + first;
      for (int64_t j = 0; j < count; ++j) dst[j] = bf16_to_f32(bits[j]);
      return;
    }
    case DType::kF8E4M3:
      return decode_f8(weight, row, first, count, dst);
    default:
      return decode_nvfp4(weight, first, count, dst);
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
