// lane_gemm_avx2.cc: bytes as 16-bit numbers, whose products vpmaddwd adds without loss.
#include <immintrin.h>

#include "backend/cpu/lane_gemm.h"

namespace spark::cpu {
namespace {

constexpr int kWidth = 8, kRows = 4, kVecs = 2;

struct Bytes {
  using Vec = uint32_t __attribute__((vector_size(32)));
  struct Lanes {
    __m256i even, odd;  // bytes 0, 2 and 1, 3 of each lane
  };
  static Lanes load_lanes(const uint32_t* from) {
    const __m256i lanes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {_mm256_srai_epi16(_mm256_slli_epi16(lanes, 8), 8), _mm256_srai_epi16(lanes, 8)};
  }
  static Vec dot(uint32_t row, const Lanes& lanes, Vec sum) {
    const __m256i even = _mm256_set1_epi32(static_cast<int>(row & 0x00FF00FF));
    const __m256i odd = _mm256_set1_epi32(static_cast<int>(row >> 8 & 0x00FF00FF));
    return sum + (Vec)_mm256_madd_epi16(even, lanes.even) + (Vec)_mm256_madd_epi16(odd, lanes.odd);
  }
};

#include "backend/cpu/lane_gemm_body.h"

}  // namespace

const LaneGemm avx2_lanes = {nullptr, multiply_lanes<Bytes, int32_t>};

}  // namespace spark::cpu
