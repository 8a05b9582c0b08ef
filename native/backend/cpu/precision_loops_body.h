// precision_loops_body.h: the loops of precision_loops.h. Included by one translation unit per instruction
// set and by nothing else: the unnamed namespace gives each of them a copy of its own. Written for the
// compiler to vectorize: no branches, no calls, arrays of known size.
#pragma once

#include <cstring>

#include "backend/cpu/precision_loops.h"
#include "core/quantizers.h"

namespace spark::cpu {
namespace {

constexpr int kTileBlocks = 16;  // blocks of NVFP4 that are handled together
constexpr int kTile = kTileBlocks * kNvfp4Block;

template <typename Body>
void with_wide(DType dtype, Body body) {
  if (dtype == DType::kF32) return body(F32{});
  if (dtype == DType::kF16) return body(F16{});
  return body(BF16{});
}

template <typename Body>
void with_any(DType dtype, Body body) {
  if (dtype == DType::kF8E4M3) return body(E4M3{});
  if (dtype == DType::kF8E5M2) return body(E5M2{});
  return with_wide(dtype, body);
}

void cast(DType src_dtype, DType dst_dtype, bool saturate, const void* src, void* dst, int64_t count) {
  with_any(src_dtype, [&](auto from) {
    with_any(dst_dtype, [&](auto to) {
      using Src = decltype(from);
      using Dst = decltype(to);
      const auto* __restrict in = static_cast<const typename Src::Code*>(src);
      auto* __restrict out = static_cast<typename Dst::Code*>(dst);
      const uint32_t limit = cast_limit<Dst>(saturate);
      for (int64_t i = 0; i < count; ++i) out[i] = Dst::encode(Src::decode(in[i]), limit);
    });
  });
}

// Magnitudes of every format are ordered like their codes with the sign cleared, infinity and NaN on top, so
// the maximum is one of integers. `Word` is the unsigned integer as wide as a code.
template <typename Word>
Word max_magnitude(const void* src, int64_t count) {
  constexpr Word kMagnitude = static_cast<Word>(~Word{0}) >> 1;
  const auto* codes = static_cast<const Word*>(src);
  Word largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Word magnitude = codes[i] & kMagnitude;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

float amax(DType dtype, const void* src, int64_t count) {
  if (dtype == DType::kF32) return F32::encode(bits_float(max_magnitude<uint32_t>(src, count)), 0);
  const uint16_t largest = max_magnitude<uint16_t>(src, count);
  return dtype == DType::kF16 ? F16::decode(largest) : BF16::decode(largest);
}

template <typename Src, Nvfp4Recipe kRecipe>
void quantize_tile(const typename Src::Code* __restrict src, const Nvfp4QuantizeArgs& args,
                   uint8_t* __restrict packed, uint8_t* __restrict block_scale) {
  const float tensor_scale = args.tensor_scale, encode_scale = args.encode_scale;
  float values[kTile], amax[kTileBlocks], multiplier[kTileBlocks];
  uint8_t codes[kTile], scales[kTileBlocks];
  for (int i = 0; i < kTile; ++i) values[i] = Src::decode(src[i]);
  for (int b = 0; b < kTileBlocks; ++b) {
    uint32_t largest = 0;
    for (int i = 0; i < kNvfp4Block; ++i) {
      const uint32_t magnitude = float_bits(values[b * kNvfp4Block + i]) & 0x7FFFFFFF;
      largest = magnitude > largest ? magnitude : largest;
    }
    amax[b] = bits_float(largest);
  }
  if constexpr (kRecipe == Nvfp4Recipe::kTe) {
    for (int b = 0; b < kTileBlocks; ++b) scales[b] = nvfp4_te_block_scale(amax[b], encode_scale);
    for (int b = 0; b < kTileBlocks; ++b) multiplier[b] = nvfp4_te_factor(scales[b], encode_scale);
  } else {
    for (int b = 0; b < kTileBlocks; ++b) scales[b] = nvfp4_block_scale(amax[b], tensor_scale);
    if constexpr (kRecipe == Nvfp4Recipe::kMse) {
      for (int b = 0; b < kTileBlocks; ++b) {
        scales[b] = nvfp4_mse_block_scale(values + b * kNvfp4Block, scales[b], tensor_scale);
      }
    }
    for (int b = 0; b < kTileBlocks; ++b) multiplier[b] = nvfp4_step(scales[b], tensor_scale);
  }
  for (int b = 0; b < kTileBlocks; ++b) {
    for (int i = 0; i < kNvfp4Block; ++i) {
      const float value = values[b * kNvfp4Block + i];
      codes[b * kNvfp4Block + i] = kRecipe == Nvfp4Recipe::kTe ? nvfp4_te_code(value, multiplier[b])
                                                                : nvfp4_code(value, multiplier[b]);
    }
  }
  uint16_t pairs[kTile / 2];
  memcpy(pairs, codes, sizeof pairs);
  for (int i = 0; i < kTile / 2; ++i) packed[i] = static_cast<uint8_t>(pairs[i] | pairs[i] >> 4);
  memcpy(block_scale, scales, sizeof scales);
}

template <typename Src, Nvfp4Recipe kRecipe>
void quantize_blocks(const Nvfp4QuantizeArgs& args, int64_t begin, int64_t end) {
  using Code = typename Src::Code;
  const auto* src = static_cast<const Code*>(args.src);
  int64_t b = begin;
  for (; b + kTileBlocks <= end; b += kTileBlocks) {
    quantize_tile<Src, kRecipe>(src + b * kNvfp4Block, args, args.packed + b * kNvfp4Block / 2,
                                args.block_scale + b);
  }
  if (b == end) return;
  Code padded[kTile] = {};
  uint8_t packed[kTile / 2], scales[kTileBlocks];
  memcpy(padded, src + b * kNvfp4Block, (end - b) * kNvfp4Block * sizeof(Code));
  quantize_tile<Src, kRecipe>(padded, args, packed, scales);
  memcpy(args.packed + b * kNvfp4Block / 2, packed, (end - b) * kNvfp4Block / 2);
  memcpy(args.block_scale + b, scales, end - b);
}

void nvfp4_quantize(const Nvfp4QuantizeArgs& args, int64_t begin, int64_t end) {
  with_wide(args.src_dtype, [&](auto format) {
    using Src = decltype(format);
    switch (args.recipe) {
      case Nvfp4Recipe::kModelopt:
        return quantize_blocks<Src, Nvfp4Recipe::kModelopt>(args, begin, end);
      case Nvfp4Recipe::kTe:
        return quantize_blocks<Src, Nvfp4Recipe::kTe>(args, begin, end);
      case Nvfp4Recipe::kMse:
        return quantize_blocks<Src, Nvfp4Recipe::kMse>(args, begin, end);
    }
  });
}

void nvfp4_dequantize(const Nvfp4DequantizeArgs& args, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const float step = nvfp4_step(args.block_scale[b], args.tensor_scale);
    const uint8_t* packed = args.packed + b * kNvfp4Block / 2;
    float* dst = args.dst + b * kNvfp4Block;
    for (int i = 0; i < kNvfp4Block; ++i) {
      dst[i] = nvfp4_value(packed[i / 2] >> i % 2 * 4 & 15, step);
    }
  }
}

void fp8_codes(DType dtype, const void* src, int64_t count, float scale, uint8_t* codes) {
  with_wide(dtype, [&](auto format) {
    using Src = decltype(format);
    const auto* __restrict in = static_cast<const typename Src::Code*>(src);
    uint8_t* __restrict out = codes;
    for (int64_t i = 0; i < count; ++i) out[i] = fp8_code(Src::decode(in[i]), scale);
  });
}

constexpr PrecisionLoops kLoops{cast, amax, nvfp4_quantize, nvfp4_dequantize, fp8_codes};

}  // namespace
}  // namespace spark::cpu
