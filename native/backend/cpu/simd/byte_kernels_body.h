// byte_kernels_body.h: the loops of byte_kernels.h, compiled once per instruction set (isa_body.h). Vectors
// have 16 lanes, in as many registers as that takes.
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "backend/cpu/simd/byte_kernels.h"
#include "backend/cpu/simd/vector_math.h"

namespace spark::cpu {
namespace {
namespace bytes {

constexpr int64_t kLanes = 16;
using Floats = float __attribute__((vector_size(kLanes * 4)));
using Words = f32::Words<Floats>;
using Bits = uint32_t __attribute__((vector_size(kLanes * 4)));
using Bytes = uint8_t __attribute__((vector_size(kLanes)));
using SignedBytes = int8_t __attribute__((vector_size(kLanes)));
using Halves = uint16_t __attribute__((vector_size(kLanes * 2)));
using SignedHalves = int16_t __attribute__((vector_size(kLanes * 2)));

template <typename Vec>
__attribute__((always_inline)) inline Vec load_as(const void* from) {
  Vec values;
  __builtin_memcpy(&values, from, sizeof(values));
  return values;
}

template <typename Vec>
__attribute__((always_inline)) inline void store(void* to, Vec values) {
  __builtin_memcpy(to, &values, sizeof(values));
}

// GCC converts vectors well only from one size to the next.
#if defined(__AVX512F__)
__attribute__((always_inline)) inline Bits widen(Bytes bytes) {
  return (Bits)_mm512_cvtepu8_epi32((__m128i)bytes);
}
__attribute__((always_inline)) inline Words widen(SignedBytes bytes) {
  return (Words)_mm512_cvtepi8_epi32((__m128i)bytes);
}
__attribute__((always_inline)) inline Bytes narrow(Words words) {
  return (Bytes)_mm512_cvtepi32_epi8((__m512i)words);
}
#else
__attribute__((always_inline)) inline Bits widen(Bytes bytes) {
  return __builtin_convertvector(__builtin_convertvector(bytes, Halves), Bits);
}
__attribute__((always_inline)) inline Words widen(SignedBytes bytes) {
  return __builtin_convertvector(__builtin_convertvector(bytes, SignedHalves), Words);
}
__attribute__((always_inline)) inline Bytes narrow(Words words) {
  return __builtin_convertvector(__builtin_convertvector(words, Halves), Bytes);
}
#endif

__attribute__((always_inline)) inline Bits widen(const uint8_t* from) { return widen(load_as<Bytes>(from)); }

// Calls body(i) for vectors of elements [i, i + kLanes) below count. The last one may overlap the one before
// it; there is none for fewer than kLanes elements. Returns the number of elements done.
template <typename Body>
__attribute__((always_inline)) inline int64_t for_vectors(int64_t count, const Body& body) {
  if (count < kLanes) return 0;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i);
  if (i < count) body(count - kLanes);
  return count;
}

void interleave(const uint8_t* const (&rows)[4], int64_t count, uint8_t flip, uint32_t* to) {
  const uint32_t flips = 0x01010101u * flip;
  const uint8_t *first = rows[0], *second = rows[1], *third = rows[2], *fourth = rows[3];
  int64_t i = for_vectors(count, [&](int64_t at) {
    const Bits lanes =
        widen(first + at) | widen(second + at) << 8 | widen(third + at) << 16 | widen(fourth + at) << 24;
    store(to + at, lanes ^ flips);
  });
  for (; i < count; ++i) {
    const uint32_t lane = first[i] | second[i] << 8 | third[i] << 16 | static_cast<uint32_t>(fourth[i]) << 24;
    to[i] = lane ^ flips;
  }
}

template <int N>
int64_t correlate_blocks(const int32_t* weights, const uint8_t* data, const int64_t* offset, int64_t depth,
                         int64_t begin, int64_t count, int32_t* sums) {
  for (; begin + (N - 1) * kLanes < count; begin += N * kLanes) {
    Bits total[N] = {};
    for (int64_t k = 0; k < depth; ++k) {
      const uint8_t* from = data + offset[k] + begin;
      const auto weight = static_cast<uint32_t>(weights[k]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) total[n] += widen(from + n * kLanes) * weight;
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) store(sums + begin + n * kLanes, total[n]);
  }
  return begin;
}

void correlate(const int32_t* weights, const uint8_t* data, const int64_t* offset, int64_t depth,
               int64_t count, int32_t* sums) {
  const int64_t done = correlate_blocks<4>(weights, data, offset, depth, 0, count, sums);
  correlate_blocks<1>(weights, data, offset, depth, done, count, sums);
}

void max_windows(const uint8_t* data, const int64_t* offset, int64_t depth, int64_t count, uint8_t* y) {
  for (int64_t i = 0; i < count; i += kLanes) {
    Bytes max = load_as<Bytes>(data + offset[0] + i);
    for (int64_t k = 1; k < depth; ++k) {
      const Bytes values = load_as<Bytes>(data + offset[k] + i);
      max = values > max ? values : max;
    }
    store(y + i, max);
  }
}

// function(a part of the values that fits into a register) for each of them: GCC chooses between the elements
// of longer vectors one by one.
template <typename Function>
__attribute__((always_inline)) inline Floats by_registers(Floats values, const Function& function) {
  vector_math::Floats parts[kLanes / vector_math::kLanes];
  __builtin_memcpy(parts, &values, sizeof(values));
#pragma GCC unroll 4
  for (vector_math::Floats& part : parts) part = function(part);
  __builtin_memcpy(&values, parts, sizeof(values));
  return values;
}

// The bytes that values become. Their limits are taken before they are rounded, which gives the same and
// leaves small integers, so that adding 1.5 · 2^23 rounds them into the low bits.
class Rounder {
 public:
  explicit Rounder(const ByteRounding& rounding)
      : lowest_(static_cast<float>((rounding.is_signed ? -128 : 0) - rounding.zero)),
        highest_(static_cast<float>((rounding.is_signed ? 127 : 255) - rounding.zero)),
        zero_(rounding.zero) {}

  Bytes operator()(Floats values) const {
    constexpr float kRound = 12582912;
    values = by_registers(
        values, [this](vector_math::Floats part) __attribute__((always_inline)) {
          part = part < lowest_ ? vector_math::splat(lowest_) : part;
          return part > highest_ ? vector_math::splat(highest_) : part;
        });
    const Words rounded = (Words)(values + kRound) - 0x4B400000 + zero_;
    return narrow(rounded);
  }

 private:
  float lowest_, highest_;
  int32_t zero_;
};

// y[i] = round(values(vector of elements from i on)); those of a vector that do not exist are anything.
template <typename Values>
__attribute__((always_inline)) inline void round_all(int64_t count, const ByteRounding& rounding,
                                                     const Values& values, uint8_t* y) {
  const Rounder round(rounding);
  const auto one = [&](int64_t at) __attribute__((always_inline)) {
    store(y + at, round(values(at, kLanes)));
  };
  if (for_vectors(count, one) == count) return;
  const Bytes bytes = round(values(0, count));
  for (int64_t i = 0; i < count; ++i) y[i] = bytes[i];
}

// `count` elements; 0 in the place of others.
template <typename Vec, typename T>
__attribute__((always_inline)) inline Vec load_some(const T* from, int64_t count) {
  if (count == kLanes) return load_as<Vec>(from);
  T some[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) some[i] = from[i];
  return load_as<Vec>(some);
}

__attribute__((always_inline)) inline Floats to_floats(Bits sums) {
  return __builtin_convertvector((Words)sums, Floats);
}

void requantize(const int32_t* sums, int64_t count, uint32_t shift, float scale, const ByteRounding& rounding,
                uint8_t* y) {
  const auto values = [&](int64_t at, int64_t some) __attribute__((always_inline)) {
    return to_floats(load_some<Bits>(sums + at, some) + shift) * scale;
  };
  round_all(count, rounding, values, y);
}

void requantize_each(const int32_t* sums, int64_t count, const uint32_t* shift, const float* scale,
                     const ByteRounding& rounding, uint8_t* y) {
  const auto values = [&](int64_t at, int64_t some) __attribute__((always_inline)) {
    const Bits shifted = load_some<Bits>(sums + at, some) + load_some<Bits>(shift + at, some);
    return to_floats(shifted) * load_some<Floats>(scale + at, some);
  };
  round_all(count, rounding, values, y);
}

void quantize(const float* x, int64_t count, float scale, const ByteRounding& rounding, uint8_t* y) {
  const auto nothing = vector_math::splat(static_cast<float>(-rounding.zero));
  const auto or_nothing = [&](vector_math::Floats quotients) __attribute__((always_inline)) {
    return quotients == quotients ? quotients : nothing;
  };
  const auto values = [&](int64_t at, int64_t some) __attribute__((always_inline)) {
    return by_registers(load_some<Floats>(x + at, some) / scale, or_nothing);
  };
  round_all(count, rounding, values, y);
}

#if defined(__AVX512BW__)
// Entries of the table by pairs: half of the pairs lie in two vectors, which one instruction looks up.
struct PairTable {
  using Pairs = uint16_t __attribute__((vector_size(64)));
  Pairs parts[4];

  explicit PairTable(const uint8_t* table) { __builtin_memcpy(parts, table, sizeof(parts)); }

  // The pairs at these indices, modulo 64, of two vectors.
  __attribute__((always_inline)) static inline Pairs chosen(Pairs a, Pairs b, Pairs indices) {
    return (Pairs)_mm512_permutex2var_epi16((__m512i)a, (__m512i)indices, (__m512i)b);
  }
  // The entries at these indices below 256.
  __attribute__((always_inline)) inline Pairs entries(Pairs indices) const {
    const Pairs pair = indices >> 1;
    const Pairs low = chosen(parts[0], parts[1], pair), high = chosen(parts[2], parts[3], pair);
    return ((pair > 63 ? high : low) >> ((indices & 1) << 3)) & 0xFF;
  }
  __attribute__((always_inline)) inline Pairs look_up(Pairs bytes) const {
    return entries(bytes & 0xFF) | entries(bytes >> 8) << 8;
  }
};

void lookup(const uint8_t* x, int64_t count, const uint8_t* table, uint8_t* y) {
  constexpr int64_t kBytes = 64;
  const PairTable pairs(table);
  int64_t i = 0;
  for (; i + kBytes <= count; i += kBytes) store(y + i, pairs.look_up(load_as<PairTable::Pairs>(x + i)));
  for (; i < count; ++i) y[i] = table[x[i]];
}
#else
void lookup(const uint8_t* x, int64_t count, const uint8_t* table, uint8_t* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = table[x[i]];
}
#endif

template <typename Vec>
void dequantize_as(const uint8_t* x, int64_t count, int32_t zero, float scale, float* y) {
  const auto values = [&](const uint8_t* from) __attribute__((always_inline)) {
    return __builtin_convertvector((Words)widen(load_as<Vec>(from)) - zero, Floats) * scale;
  };
  const auto one = [&](int64_t at) __attribute__((always_inline)) { store(y + at, values(x + at)); };
  if (for_vectors(count, one) == count) return;
  uint8_t some[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) some[i] = x[i];
  const Floats numbers = values(some);
  for (int64_t i = 0; i < count; ++i) y[i] = numbers[i];
}

void dequantize(const uint8_t* x, bool is_signed, int64_t count, int32_t zero, float scale, float* y) {
  if (is_signed) return dequantize_as<SignedBytes>(x, count, zero, scale, y);
  dequantize_as<Bytes>(x, count, zero, scale, y);
}

constexpr ByteKernels kKernels = {
    .interleave = interleave,
    .correlate = correlate,
    .max_windows = max_windows,
    .requantize = requantize,
    .requantize_each = requantize_each,
    .quantize = quantize,
    .lookup = lookup,
    .dequantize = dequantize,
};

}  // namespace bytes
}  // namespace
}  // namespace spark::cpu
