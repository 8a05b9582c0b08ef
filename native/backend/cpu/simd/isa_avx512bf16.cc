// isa_avx512bf16.cc: AVX-512 BF16 and VNNI: vdpbf16ps and vpdpbusd.
#include <immintrin.h>

#include "backend/block_panels.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/float_formats.h"

namespace spark::cpu {
namespace {

namespace codes {

#include "backend/cpu/simd/vec16.h"
//
#include "backend/cpu/simd/vec_memory.h"
//
#include "backend/cpu/gemm/block_groups.h"

constexpr int kCodeRows = 6, kCodeVecs = 2;

template <bool>
inline Bits add_products(Bits sum, Bits bytes, uint32_t row) {
  return (Bits)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)bytes, _mm512_set1_epi32(static_cast<int>(row)));
}

#include "backend/cpu/gemm/multiply_codes.h"

}  // namespace codes

constexpr int kWidth = 16, kRows = 14, kVecs = 2;

struct Pairs {
  using Vec = __m512;
  using Groups = __m512bh;
  static Groups load_groups(const uint32_t* from) { return (Groups)_mm512_loadu_si512(from); }
  static Vec dot(uint32_t row, Groups groups, Vec sum) {
    return _mm512_dpbf16_ps(sum, (Groups)_mm512_set1_epi32(static_cast<int>(row)), groups);
  }
};

struct Bytes {
  using Vec = uint32_t __attribute__((vector_size(64)));
  using Groups = __m512i;
  static Groups load_groups(const uint32_t* from) { return _mm512_loadu_si512(from); }
  static Vec dot(uint32_t row, Groups groups, Vec sum) {
    return (Vec)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(static_cast<int>(row)), groups);
  }
};

struct SignedBytes : Bytes {
  static Vec dot(uint32_t row, Groups groups, Vec sum) {
    return (Vec)_mm512_dpbusd_epi32((__m512i)sum, groups, _mm512_set1_epi32(static_cast<int>(row)));
  }
};

#include "backend/cpu/gemm/dot_kernels_body.h"

}  // namespace

const DotKernels avx512bf16_dot_kernels = {
    .bf16 = multiply_dot_groups<Pairs, float>,
    .codes = codes::multiply_codes,
    .bytes = multiply_dot_groups<Bytes, int32_t>,
    .signed_bytes = multiply_dot_groups<SignedBytes, int32_t>,
};

}  // namespace spark::cpu
