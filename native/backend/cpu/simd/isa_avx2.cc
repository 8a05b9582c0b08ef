// isa_avx2.cc: x86-64-v3: 16 registers of 8 floats.
#include <immintrin.h>

#include "backend/block_panels.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/float_formats.h"

namespace spark::cpu {
namespace {

// Bytes without instructions for their products.
namespace halves {

using Shorts = int16_t __attribute__((vector_size(32)));
using Sums = uint32_t __attribute__((vector_size(32)));

inline Sums add_pairs(Shorts a, Shorts b) { return (Sums)_mm256_madd_epi16((__m256i)a, (__m256i)b); }

#include "backend/cpu/gemm/dot_kernels_halves.h"

}  // namespace halves

namespace vec {

constexpr int kWidth = 8, kRows = 6, kVecs = 2;
using Vec = float __attribute__((vector_size(32)));
using Bits = uint32_t __attribute__((vector_size(32)));

inline Vec multiply_add(Vec a, Vec b, Vec sum) { return _mm256_fmadd_ps(a, b, sum); }

inline Vec larger(Vec a, Vec b) {
  return _mm256_blendv_ps(_mm256_max_ps(b, a), b, _mm256_cmp_ps(b, b, _CMP_UNORD_Q));
}

inline Vec at_least(Vec values, Vec least) { return _mm256_max_ps(least, values); }
inline Vec at_most(Vec values, Vec most) { return _mm256_min_ps(most, values); }

inline void stream(float* to, Vec vec) { _mm256_stream_ps(to, vec); }

inline __m256i first_lanes(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline Vec load_part(const float* from, int64_t count) {
  return _mm256_maskload_ps(from, first_lanes(count));
}

inline void store_part(float* to, Vec values, int64_t count) {
  _mm256_maskstore_ps(to, first_lanes(count), values);
}

inline Bits load_codes(const uint8_t* codes) {
  return (Bits)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
}

inline Bits load_codes(const uint16_t* codes) {
  return (Bits)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
}

inline Vec load_halves(const uint16_t* codes) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
}

inline Vec lookup_e2m1(Bits codes) {
  const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32((__m256i)codes, 3), 31);
  const __m256 magnitude =
      _mm256_permutevar8x32_ps(_mm256_loadu_ps(kE2M1), (__m256i)codes);  // by the low three bits
  return _mm256_or_ps(magnitude, _mm256_castsi256_ps(sign));
}

inline Bits lookup_bytes(Bits codes, const uint8_t* table) {
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
  return (Bits)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), (__m256i)codes);
}

inline Bits lookup_words(Bits indices, const uint32_t* table) {
  return (Bits)_mm256_i32gather_epi32(reinterpret_cast<const int*>(table), (__m256i)indices, 4);
}

// Both halves of the table by the low three bits, one of them by the fourth.
inline Vec lookup(Bits codes, const float* table) {
  const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)codes);
  const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), (__m256i)codes);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32((__m256i)codes, 28)));
}

// The two codes of a byte go to the halves of a 64-bit lane.
inline Vec load_e2m1(const uint8_t* codes) {
  const __m256i bytes = _mm256_cvtepu8_epi64(_mm_loadu_si32(codes));
  return lookup_e2m1((Bits)_mm256_or_si256(bytes, _mm256_slli_epi64(bytes, 28)));
}

// By two inside the 128-bit halves, then the pairs change places.
inline Vec evens(Vec a, Vec b) {
  const __m256d pairs = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xD8));
  return _mm256_castpd_ps(_mm256_permute4x64_pd(pairs, 0xD8));
}

inline void order_before_reads(Vec& vec) { asm volatile("" : "+x"(vec) : : "memory"); }

using Mask = __m256i;

inline Mask mask_between(int64_t begin, int64_t end) {
  return _mm256_andnot_si256(first_lanes(begin), first_lanes(end));
}

inline Mask mask_if(bool wanted, Mask mask) {
  return _mm256_and_si256(mask, _mm256_set1_epi32(-static_cast<int>(wanted)));
}

inline Vec load_masked(const float* from, Mask mask) { return _mm256_maskload_ps(from, mask); }

// 4 by 4 inside the 128-bit halves, then the halves change places.
inline void transpose(Vec (&v)[8]) {
  Vec t[8];
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    const __m256 a = _mm256_unpacklo_ps(v[i], v[i + 1]), b = _mm256_unpacklo_ps(v[i + 2], v[i + 3]);
    const __m256 c = _mm256_unpackhi_ps(v[i], v[i + 1]), d = _mm256_unpackhi_ps(v[i + 2], v[i + 3]);
    t[i] = _mm256_shuffle_ps(a, b, 0x44);
    t[i + 1] = _mm256_shuffle_ps(a, b, 0xEE);
    t[i + 2] = _mm256_shuffle_ps(c, d, 0x44);
    t[i + 3] = _mm256_shuffle_ps(c, d, 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
  }
}

#include "backend/cpu/gemm/gemm_body.h"

constexpr int kCodeRows = 2, kCodeVecs = 2;

template <bool kWide>
inline Bits add_products(Bits sum, Bits bytes, uint32_t row) {
  if constexpr (kWide) return halves::SignedByUnsigned::dot(row, halves::split<halves::Unsigned>(bytes), sum);
  const __m256i pairs = _mm256_maddubs_epi16((__m256i)bytes, _mm256_set1_epi32(static_cast<int>(row)));
  return sum + (Bits)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

#include "backend/cpu/gemm/multiply_codes.h"

}  // namespace vec

namespace dot {

using namespace halves;
constexpr int kWidth = 8, kRows = 4, kVecs = 2;

#include "backend/cpu/gemm/dot_kernels_body.h"

constexpr DotKernels kKernels = {
    .bf16 = nullptr,
    .codes = vec::multiply_codes,
    .bytes = multiply_dot_groups<UnsignedBySigned, int32_t>,
    .signed_bytes = multiply_dot_groups<SignedByUnsigned, int32_t>,
};

}  // namespace dot

}  // namespace
}  // namespace spark::cpu

#include "backend/cpu/simd/isa_body.h"

namespace spark::cpu {
const CpuKernels avx2_kernels = kCpuKernels;
}
