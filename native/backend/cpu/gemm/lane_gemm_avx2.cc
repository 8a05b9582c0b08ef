// lane_gemm_avx2.cc: bytes without instructions for their products.
#include <immintrin.h>

#include "backend/cpu/gemm/lane_gemm.h"

namespace spark::cpu {
namespace {

constexpr int kWidth = 8, kRows = 4, kVecs = 2;
using Shorts = int16_t __attribute__((vector_size(32)));
using Sums = uint32_t __attribute__((vector_size(32)));

inline Sums add_pairs(Shorts a, Shorts b) { return (Sums)_mm256_madd_epi16((__m256i)a, (__m256i)b); }

#include "backend/cpu/gemm/lane_gemm_halves.h"
//
#include "backend/cpu/gemm/lane_gemm_body.h"

}  // namespace

const LaneGemm avx2_lanes = {nullptr, multiply_lanes<Bytes<Unsigned, Signed>, int32_t>,
                             multiply_lanes<Bytes<Signed, Unsigned>, int32_t>};

}  // namespace spark::cpu
