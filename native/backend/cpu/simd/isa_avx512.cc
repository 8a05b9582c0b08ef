// isa_avx512.cc: x86-64-v4: 32 registers of 16 floats.
#include <immintrin.h>

#include "backend/block_panels.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/float_formats.h"

namespace spark::cpu {
namespace {

// Bytes without instructions for their products.
namespace halves {

using Shorts = int16_t __attribute__((vector_size(64)));
using Sums = uint32_t __attribute__((vector_size(64)));

inline Sums add_pairs(Shorts a, Shorts b) { return (Sums)_mm512_madd_epi16((__m512i)a, (__m512i)b); }

#include "backend/cpu/gemm/dot_kernels_halves.h"

}  // namespace halves

namespace vec {

#include "backend/cpu/simd/vec16.h"

constexpr int kRows = 14, kVecs = 2;

#include "backend/cpu/gemm/gemm_body.h"

constexpr int kCodeRows = 6, kCodeVecs = 2;

template <bool kWide>
inline Bits add_products(Bits sum, Bits bytes, uint32_t row) {
  if constexpr (kWide) return halves::SignedByUnsigned::dot(row, halves::split<halves::Unsigned>(bytes), sum);
  const __m512i pairs = _mm512_maddubs_epi16((__m512i)bytes, _mm512_set1_epi32(static_cast<int>(row)));
  return sum + (Bits)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}

#include "backend/cpu/gemm/multiply_codes.h"

}  // namespace vec

namespace dot {

using namespace halves;
constexpr int kWidth = 16, kRows = 12, kVecs = 2;

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
const CpuKernels avx512_kernels = kCpuKernels;
}
