// lane_gemm_avx512.cc: bytes without instructions for their products.
#include <immintrin.h>

#include "backend/cpu/gemm/lane_gemm.h"

namespace spark::cpu {
namespace {

constexpr int kWidth = 16, kRows = 12, kVecs = 2;
using Shorts = int16_t __attribute__((vector_size(64)));
using Sums = uint32_t __attribute__((vector_size(64)));

inline Sums add_pairs(Shorts a, Shorts b) { return (Sums)_mm512_madd_epi16((__m512i)a, (__m512i)b); }

#include "backend/cpu/gemm/lane_gemm_halves.h"
//
#include "backend/cpu/gemm/lane_gemm_body.h"

}  // namespace

const LaneGemm avx512_lanes = {nullptr, multiply_lanes<Bytes<Unsigned, Signed>, int32_t>,
                               multiply_lanes<Bytes<Signed, Unsigned>, int32_t>};

}  // namespace spark::cpu
