// precision_kernels_body.h: the loops of precision_kernels.h, compiled once per instruction set (isa_body.h).
// Written for the compiler to vectorize: no branches, no calls, arrays of known size.
#pragma once

#include <cstring>
#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "backend/cpu/simd/precision_kernels.h"
#include "core/quantizers.h"

namespace spark::cpu {
namespace {
namespace precision {

constexpr int kTileBlocks = 16;  // blocks of NVFP4 that are handled together
constexpr int kTile = kTileBlocks * kNvfp4Block;
constexpr int kStaged = 4096;  // bytes that are stored past the cache at a time

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

// Decoding writes no NaN but the one of f32, so f32 as the destination has nothing left to do.
template <typename Src, typename Dst>
__attribute__((always_inline)) inline typename Dst::Code convert(typename Src::Code code, uint32_t limit) {
  constexpr bool kDecoded = sizeof(typename Src::Code) < 4 && sizeof(typename Dst::Code) == 4;
  if constexpr (kDecoded) {
    return Src::decode(code);
  } else {
    return Dst::encode(Src::widen(code), limit);
  }
}

#if defined(__AVX512BW__)
// Codes of 32 numbers in bf16, in integers of 16 bits: rounds the significand 1.m by a shift that is longer
// below the smallest normal number, as Dst::encode does by adding.
template <typename Dst>
inline __m256i encode_bf16(__m512i x, uint32_t limit, uint32_t nan) {
  const auto splat = [](uint32_t value) { return _mm512_set1_epi16(static_cast<int16_t>(value)); };
  constexpr uint32_t kMinExponent = Dst::kExponentGap + 1;     // exponent of that number
  constexpr uint32_t kMantissa = 23 - Dst::kShift, kAll = 12;  // a shift by kAll leaves nothing
  const __m512i magnitude = _mm512_and_si512(x, splat(0x7FFF)), exponent = _mm512_srli_epi16(magnitude, 7);
  const __m512i significand = _mm512_or_si512(_mm512_and_si512(magnitude, splat(0x7F)), splat(0x80));
  const __m512i below = _mm512_subs_epu16(splat(kMinExponent), exponent);
  const __m512i shift = _mm512_min_epu16(_mm512_add_epi16(below, splat(Dst::kShift - 16)), splat(kAll));
  const __m512i half = _mm512_srlv_epi16(_mm512_sllv_epi16(splat(1), shift), splat(1));
  const __m512i odd = _mm512_and_si512(_mm512_srlv_epi16(significand, shift), splat(1));
  const __m512i bias = _mm512_add_epi16(_mm512_sub_epi16(half, splat(1)), odd);
  const __m512i rounded = _mm512_srlv_epi16(_mm512_add_epi16(significand, bias), shift);
  const __m512i binade = _mm512_slli_epi16(_mm512_subs_epu16(exponent, splat(kMinExponent)), kMantissa);
  const __m512i code = _mm512_min_epu16(_mm512_add_epi16(rounded, binade), splat(limit));
  const __m512i sign = _mm512_and_si512(_mm512_srli_epi16(x, 8), splat(0x80));
  const __mmask32 is_nan = _mm512_cmpgt_epu16_mask(magnitude, splat(kInfinityBits >> 16));
  return _mm512_cvtepi16_epi8(_mm512_mask_mov_epi16(_mm512_or_si512(code, sign), is_nan, splat(nan)));
}

// How many of the first numbers have become codes.
template <typename Dst>
inline int64_t encode_bf16_run(const uint16_t* in, uint8_t* out, int64_t count, uint32_t limit) {
  const uint32_t nan = Dst::encode(bits_float(kNaNBits), limit);
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i codes = encode_bf16<Dst>(_mm512_loadu_si512(in + i), limit, nan);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), codes);
  }
  return i;
}
#endif

template <typename Src, typename Dst>
__attribute__((always_inline)) inline void convert_run(const typename Src::Code* __restrict in,
                                                       typename Dst::Code* __restrict out, int64_t count,
                                                       uint32_t limit) {
#if defined(__AVX512BW__)
  if constexpr (std::is_same_v<Src, BF16> && sizeof(typename Dst::Code) == 1) {
    const int64_t done = encode_bf16_run<Dst>(in, out, count, limit);
    in += done, out += done, count -= done;
  }
#endif
  for (int64_t i = 0; i < count; ++i) out[i] = convert<Src, Dst>(in[i], limit);
}

// Copies kStaged bytes to a line of memory without reading it into the cache first, where the machine can.
void store_past_cache(void* dst, const void* src) {
#if defined(__AVX512F__)
  const auto* from = static_cast<const __m512i*>(src);
  auto* to = static_cast<__m512i*>(dst);
  for (int i = 0; i < kStaged / 64; ++i) _mm512_stream_si512(to + i, _mm512_load_si512(from + i));
#elif defined(__x86_64__)
  const auto* from = static_cast<const __m128i*>(src);
  auto* to = static_cast<__m128i*>(dst);
  for (int i = 0; i < kStaged / 16; ++i) _mm_stream_si128(to + i, _mm_load_si128(from + i));
#else
  memcpy(dst, src, kStaged);
#endif
}

// Stores past the cache become visible to other threads.
void fence_stores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

template <typename Src, typename Dst>
void convert_past_cache(const typename Src::Code* in, typename Dst::Code* out, int64_t count,
                        uint32_t limit) {
  using Code = typename Dst::Code;
  constexpr int64_t kRun = kStaged / sizeof(Code);
  const int64_t to_line = (64 - reinterpret_cast<uintptr_t>(out) % 64) % 64 / sizeof(Code);
  int64_t i = to_line < count ? to_line : count;
  convert_run<Src, Dst>(in, out, i, limit);
  for (; i + kRun <= count; i += kRun) {
    alignas(64) Code staged[kRun];
    convert_run<Src, Dst>(in + i, staged, kRun, limit);
    store_past_cache(out + i, staged);
  }
  fence_stores();
  convert_run<Src, Dst>(in + i, out + i, count - i, limit);
}

void cast(DType src_dtype, DType dst_dtype, bool saturate, bool past_cache, const void* src, void* dst,
          int64_t count) {
  with_any(src_dtype, [&](auto from) {
    with_any(dst_dtype, [&](auto to) {
      using Src = decltype(from);
      using Dst = decltype(to);
      const auto* in = static_cast<const typename Src::Code*>(src);
      auto* out = static_cast<typename Dst::Code*>(dst);
      const uint32_t limit = cast_limit<Dst>(saturate);
      if (past_cache) return convert_past_cache<Src, Dst>(in, out, count, limit);
      convert_run<Src, Dst>(in, out, count, limit);
    });
  });
}

// Magnitudes of every format are ordered like their codes with the sign cleared, infinity and NaN on top, so
// the maximum is one of integers. `Word` is the unsigned integer as wide as a code.
template <typename Word>
Word max_magnitude(const void* src, int64_t count) {
  constexpr Word kMagnitude = static_cast<Word>(~Word{0}) >> 1;
  const auto* codes = static_cast<const Word*>(src);
  Word max = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Word magnitude = codes[i] & kMagnitude;
    max = magnitude > max ? magnitude : max;
  }
  return max;
}

float amax(DType dtype, const void* src, int64_t count) {
  if (dtype == DType::kF32) return F32::encode(bits_float(max_magnitude<uint32_t>(src, count)), 0);
  const uint16_t max = max_magnitude<uint16_t>(src, count);
  return dtype == DType::kF16 ? F16::decode(max) : BF16::decode(max);
}

// The best scales for the blocks of a tile, given those of modelopt. One lane per block: sums run down
// columns, those of all candidates at a time, so that an addition need not wait for the one before.
void search_scales(const float* __restrict values, float tensor_scale, uint32_t* __restrict scales) {
  float column[kTileBlocks], min_error[kTileBlocks];
  float factor[kMseCandidates][kTileBlocks], sum[kMseCandidates][kTileBlocks] = {};
  uint32_t candidate[kMseCandidates][kTileBlocks];
  for (int c = 0; c < kMseCandidates; ++c) {
    for (int b = 0; b < kTileBlocks; ++b) candidate[c][b] = nvfp4_mse_candidate(scales[b], c);
    for (int b = 0; b < kTileBlocks; ++b) factor[c][b] = nvfp4_mse_factor(candidate[c][b], tensor_scale);
  }
  for (int i = 0; i < kNvfp4Block; ++i) {
    for (int b = 0; b < kTileBlocks; ++b) column[b] = values[b * kNvfp4Block + i];
    for (int c = 0; c < kMseCandidates; ++c) {
      for (int b = 0; b < kTileBlocks; ++b) sum[c][b] += nvfp4_squared_error(column[b], factor[c][b]);
    }
  }
  for (int b = 0; b < kTileBlocks; ++b) min_error[b] = bits_float(kInfinityBits);
  for (int c = 0; c < kMseCandidates; ++c) {
    for (int b = 0; b < kTileBlocks; ++b) {
      const float error = nvfp4_error(sum[c][b], candidate[c][b]);
      scales[b] = error < min_error[b] ? candidate[c][b] : scales[b];
      min_error[b] = error < min_error[b] ? error : min_error[b];
    }
  }
}

template <typename Src, Nvfp4Recipe kRecipe>
void quantize_tile(const typename Src::Code* __restrict src, const Nvfp4QuantizeArgs& args,
                   uint8_t* __restrict packed, uint8_t* __restrict block_scale) {
  const float tensor_scale = args.tensor_scale, encode_scale = args.encode_scale;
  float values[kTile], amax[kTileBlocks], multiplier[kTileBlocks];
  uint32_t codes[kTile], scales[kTileBlocks];  // as wide as the numbers: that is what vectorizes
  for (int i = 0; i < kTile; ++i) values[i] = Src::widen(src[i]);
  for (int b = 0; b < kTileBlocks; ++b) {
    uint32_t max = 0;
    for (int i = 0; i < kNvfp4Block; ++i) {
      const uint32_t magnitude = float_bits(values[b * kNvfp4Block + i]) & 0x7FFFFFFF;
      max = magnitude > max ? magnitude : max;
    }
    amax[b] = bits_float(max);
  }
  if constexpr (kRecipe == Nvfp4Recipe::kTe) {
    for (int b = 0; b < kTileBlocks; ++b) scales[b] = nvfp4_te_block_scale(amax[b], encode_scale);
    for (int b = 0; b < kTileBlocks; ++b) multiplier[b] = nvfp4_te_factor(scales[b], encode_scale);
  } else {
    for (int b = 0; b < kTileBlocks; ++b) scales[b] = nvfp4_block_scale(amax[b], tensor_scale);
    if constexpr (kRecipe == Nvfp4Recipe::kMse) search_scales(values, tensor_scale, scales);
    for (int b = 0; b < kTileBlocks; ++b) multiplier[b] = nvfp4_step(scales[b], tensor_scale);
  }
  for (int b = 0; b < kTileBlocks; ++b) {
    for (int i = 0; i < kNvfp4Block; ++i) {
      const float value = values[b * kNvfp4Block + i];
      codes[b * kNvfp4Block + i] = kRecipe == Nvfp4Recipe::kTe ? nvfp4_te_code(value, multiplier[b])
                                                               : nvfp4_code(value, multiplier[b]);
    }
  }
  uint64_t pairs[kTile / 2];
  memcpy(pairs, codes, sizeof pairs);
  for (int i = 0; i < kTile / 2; ++i) packed[i] = static_cast<uint8_t>(pairs[i] | pairs[i] >> 28);
  for (int b = 0; b < kTileBlocks; ++b) block_scale[b] = static_cast<uint8_t>(scales[b]);
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

void dequantize_tile(const uint8_t* __restrict packed, const uint8_t* __restrict block_scale,
                     float tensor_scale, float* __restrict dst) {
  uint64_t pairs[kTile / 2];
  uint32_t codes[kTile], scales[kTileBlocks];
  float steps[kTileBlocks];
  for (int i = 0; i < kTile / 2; ++i) {
    const uint64_t pair = packed[i];
    pairs[i] = (pair & 15) | (pair & 0xF0) << 28;
  }
  memcpy(codes, pairs, sizeof codes);
  for (int b = 0; b < kTileBlocks; ++b) scales[b] = block_scale[b];
  for (int b = 0; b < kTileBlocks; ++b) steps[b] = nvfp4_step(scales[b], tensor_scale);
  for (int b = 0; b < kTileBlocks; ++b) {
    for (int i = 0; i < kNvfp4Block; ++i) {
      dst[b * kNvfp4Block + i] = nvfp4_value(codes[b * kNvfp4Block + i], steps[b]);
    }
  }
}

void nvfp4_dequantize(const Nvfp4DequantizeArgs& args, int64_t begin, int64_t end) {
  int64_t b = begin;
  for (; b + kTileBlocks <= end; b += kTileBlocks) {
    dequantize_tile(args.packed + b * kNvfp4Block / 2, args.block_scale + b, args.tensor_scale,
                    args.dst + b * kNvfp4Block);
  }
  if (b == end) return;
  uint8_t packed[kTile / 2] = {}, scales[kTileBlocks] = {};
  float dst[kTile];
  memcpy(packed, args.packed + b * kNvfp4Block / 2, (end - b) * kNvfp4Block / 2);
  memcpy(scales, args.block_scale + b, end - b);
  dequantize_tile(packed, scales, args.tensor_scale, dst);
  memcpy(args.dst + b * kNvfp4Block, dst, (end - b) * kNvfp4Block * sizeof(float));
}

void fp8_codes(DType dtype, const void* src, int64_t count, float scale, uint8_t* codes) {
  with_wide(dtype, [&](auto format) {
    using Src = decltype(format);
    const auto* __restrict in = static_cast<const typename Src::Code*>(src);
    uint8_t* __restrict out = codes;
    for (int64_t i = 0; i < count; ++i) out[i] = fp8_code(Src::widen(in[i]), scale);
  });
}

void bf16_pairs(const float* low, const float* high, int64_t count, uint32_t* __restrict pairs) {
  const uint32_t limit = BF16::limit(false);
  for (int64_t i = 0; i < count; ++i) {
    pairs[i] = BF16::encode(low[i], limit) | uint32_t{BF16::encode(high[i], limit)} << 16;
  }
}

constexpr PrecisionKernels kKernels = {
    .cast = cast,
    .amax = amax,
    .nvfp4_quantize = nvfp4_quantize,
    .nvfp4_dequantize = nvfp4_dequantize,
    .fp8_codes = fp8_codes,
    .bf16_pairs = bf16_pairs,
};

}  // namespace precision
}  // namespace
}  // namespace spark::cpu
