// lane_gemm_avx512.cc: bytes as 16-bit numbers, whose products vpmaddwd adds without loss.
#include <immintrin.h>

#include "backend/cpu/lane_gemm.h"

namespace spark::cpu {
namespace {

constexpr int kWidth = 16, kRows = 12, kVecs = 2;

struct Bytes {
  using Vec = uint32_t __attribute__((vector_size(64)));
  struct Lanes {
    __m512i even, odd;  // bytes 0, 2 and 1, 3 of each lane
  };
  static Lanes load_lanes(const uint32_t* from) {
    const __m512i lanes = _mm512_loadu_si512(reinterpret_cast<const __m512i*>(from));
    return {_mm512_srai_epi16(_mm512_slli_epi16(lanes, 8), 8), _mm512_srai_epi16(lanes, 8)};
  }
  static Vec dot(uint32_t row, const Lanes& lanes, Vec sum) {
    const __m512i even = _mm512_set1_epi32(static_cast<int>(row & 0x00FF00FF));
    const __m512i odd = _mm512_set1_epi32(static_cast<int>(row >> 8 & 0x00FF00FF));
    return sum + (Vec)_mm512_madd_epi16(even, lanes.even) + (Vec)_mm512_madd_epi16(odd, lanes.odd);
  }
};

#include "backend/cpu/lane_gemm_body.h"

}  // namespace

const LaneGemm avx512_lanes = {nullptr, multiply_lanes<Bytes, int32_t>};

}  // namespace spark::cpu
