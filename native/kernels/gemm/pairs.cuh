// pairs.cuh: eight neighbouring elements of a weight row as four pairs of bf16 (or f16, for f16 and f32) for
// the tensor cores. What does not fit stays outside: row_scale() and tensor_scale(), by which sums are
// multiplied. f32 and f16 are rounded to bf16, f32 to f16; the other formats are exact: E2M1 times its
// block's E4M3 scale has six significant bits.
#pragma once

#include "kernels/gemm/mma.cuh"
#include "kernels/gemm/weight.cuh"

namespace spark {

struct alignas(16) Eight {
  uint32_t pairs[4];
};

// Eight neighbouring numbers, zeros from `inside` on.
struct alignas(16) EightFloats {
  float at[8];

  __device__ void load(const float* from, int64_t inside) {
    if (inside >= 8 && reinterpret_cast<uintptr_t>(from) % alignof(EightFloats) == 0) {
      *this = *reinterpret_cast<const EightFloats*>(from);
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) at[i] = i < inside ? from[i] : 0;
  }

  template <typename Number>
  __device__ Eight rounded() const {
    Eight eight;
#pragma unroll
    for (int i = 0; i < 4; ++i) eight.pairs[i] = round_pair<Number>(at[2 * i], at[2 * i + 1]);
    return eight;
  }
};

// Elements [col, col + 8) of a row, zeros beyond its end, as pairs of Number.
template <typename Format, typename Number = BF16>
struct Codes;

// Numbers that the tensor cores take as they lie in memory.
struct StoredPairs {
  static constexpr bool kStoredAsPairs = true;
  Bytes<16> codes;

  __device__ void load(const Weight& weight, int64_t row, int64_t col) {
    codes.load(static_cast<const uint16_t*>(weight.data) + row * weight.cols + col, weight.cols - col);
  }
  __device__ Eight decode() const {
    return {{codes.words[0], codes.words[1], codes.words[2], codes.words[3]}};
  }
  __device__ static float row_scale(const Weight&, int64_t) { return 1; }
  __device__ static float tensor_scale(const Weight&) { return 1; }
};

template <>
struct Codes<Plain<BF16>> : StoredPairs {};
template <>
struct Codes<Plain<F16>, F16> : StoredPairs {};

template <>
struct Codes<Plain<F16>> {
  static constexpr bool kStoredAsPairs = false;
  Bytes<16> codes;

  __device__ void load(const Weight& weight, int64_t row, int64_t col) {
    codes.load(static_cast<const uint16_t*>(weight.data) + row * weight.cols + col, weight.cols - col);
  }
  __device__ Eight decode() const {
    Eight eight;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t two = codes.words[i];
      eight.pairs[i] = round_pair(F16::decode(two & 0xFFFF), F16::decode(two >> 16));
    }
    return eight;
  }
  __device__ static float row_scale(const Weight&, int64_t) { return 1; }
  __device__ static float tensor_scale(const Weight&) { return 1; }
};

template <typename Number>
struct Codes<Plain<F32>, Number> {
  static constexpr bool kStoredAsPairs = false;
  EightFloats values;

  __device__ void load(const Weight& weight, int64_t row, int64_t col) {
    values.load(static_cast<const float*>(weight.data) + row * weight.cols + col, weight.cols - col);
  }
  __device__ Eight decode() const { return values.rounded<Number>(); }
  __device__ static float row_scale(const Weight&, int64_t) { return 1; }
  __device__ static float tensor_scale(const Weight&) { return 1; }
};

template <>
struct Codes<RowScaledE4M3> {
  static constexpr bool kStoredAsPairs = false;
  Bytes<8> codes;

  __device__ void load(const Weight& weight, int64_t row, int64_t col) {
    codes.load(static_cast<const uint8_t*>(weight.data) + row * weight.cols + col, weight.cols - col);
  }
  // Exponent and mantissa move into their places in bf16, whose bias is larger by 120.
  __device__ static uint32_t decode_pair(uint32_t two) {
    const uint32_t spread = (two & 0xFF) | (two & 0xFF00) << 8;
    return multiply_pair((spread & 0x00800080) << 8 | (spread & 0x007F007F) << 4, 0x7B807B80);
  }
  __device__ static uint32_t decode_pair_with_nan(uint32_t two) {
    return round_pair(E4M3::decode(two & 0xFF), E4M3::decode(two >> 8 & 0xFF));
  }
  __device__ Eight decode() const {
    Eight eight;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t four = codes.words[i];
      const bool nan = (((four & 0x7F7F7F7F) + 0x01010101) & 0x80808080) != 0;
      eight.pairs[2 * i] = nan ? decode_pair_with_nan(four) : decode_pair(four);
      eight.pairs[2 * i + 1] = nan ? decode_pair_with_nan(four >> 16) : decode_pair(four >> 16);
    }
    return eight;
  }
  __device__ static float row_scale(const Weight& weight, int64_t row) { return weight.row_scale[row]; }
  __device__ static float tensor_scale(const Weight&) { return 1; }
};

template <>
struct Codes<RowScaledI8> {
  static constexpr bool kStoredAsPairs = false;
  Bytes<8> codes;

  __device__ void load(const Weight& weight, int64_t row, int64_t col) {
    codes.load(static_cast<const uint8_t*>(weight.data) + row * weight.cols + col, weight.cols - col);
  }
  __device__ Eight decode() const {
    Eight eight;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      eight.pairs[i] = round_pair(codes.at<int8_t>(2 * i), codes.at<int8_t>(2 * i + 1));
    }
    return eight;
  }
  __device__ static float row_scale(const Weight& weight, int64_t row) { return weight.row_scale[row]; }
  __device__ static float tensor_scale(const Weight&) { return 1; }
};

template <>
struct Codes<Nvfp4> {
  static constexpr bool kStoredAsPairs = false;
  Bytes<4> codes;
  uint8_t block_scale;

  __device__ void load(const Weight& weight, int64_t row, int64_t col) {
    const int64_t at = row * weight.cols + col;
    codes.load(static_cast<const uint8_t*>(weight.data) + at / 2, (weight.cols - col) / 2);
    block_scale = col < weight.cols ? weight.block_scale[at / 16] : 0;
  }
  // An E2M1 code in the place of a bf16 is 2^126 times too small. The block scale makes up for 2^119 of that,
  // more would overflow; the rest is in tensor_scale().
  __device__ Eight decode() const {
    const float factor = E4M3::decode(block_scale) * 0x1p119f;
    const uint32_t factors = round_pair(factor, factor), eight_codes = codes.words[0];
    Eight eight;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t two = eight_codes >> 8 * i;
      const uint32_t spread = (two & 0x0F) | (two & 0xF0) << 12;
      eight.pairs[i] = multiply_pair((spread & 0x00070007) << 6 | (spread & 0x00080008) << 12, factors);
    }
    return eight;
  }
  __device__ static float row_scale(const Weight&, int64_t) { return 1; }
  __device__ static float tensor_scale(const Weight& weight) { return weight.tensor_scale * 128; }
};

// Rows end with a block. What a block stands for is rounded to bf16.
template <typename Format>
struct Codes<InBlocks<Format>> {
  static constexpr bool kStoredAsPairs = false;
  uint32_t fours[2];
  float scale, offset, zero;

  __device__ void load(const Weight& weight, int64_t row, int64_t col) {
    constexpr int kElements = Format::kElements;
    const bool inside = col < weight.cols;
    const int64_t at = inside ? col : 0;
    const uint8_t* block = static_cast<const uint8_t*>(weight.data) +
                           (row * (weight.cols / kElements) + at / kElements) * Format::kBytes;
    const int i = static_cast<int>(at % kElements), run = i / Format::kRun;
    fours[0] = Format::four(block, i);
    fours[1] = Format::four(block, i + 4);
    scale = blocks::scale_of<Format>(block, run);
    zero = blocks::zero_of<Format>(block);
    offset = 0;
    if constexpr (Format::kOffset != 0) offset = blocks::offset_of<Format>(block, run);
    if (inside) return;
    fours[0] = fours[1] = 0;  // whose levels are finite
    scale = offset = zero = 0;
  }
  __device__ Eight decode() const {
    Eight eight;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t two = fours[i / 2] >> i % 2 * 16;
      eight.pairs[i] = round_pair(element(two & 0xFF), element(two >> 8 & 0xFF));
    }
    return eight;
  }
  __device__ static float row_scale(const Weight&, int64_t) { return 1; }
  __device__ static float tensor_scale(const Weight&) { return 1; }

 private:
  __device__ float element(uint32_t code) const {
    const float value = (blocks::level_of<Format>(code) - zero) * scale;
    if constexpr (Format::kOffset == 0) return value;
    return value + offset;
  }
};

}  // namespace spark
