// lane_gemm_avx512.cc: bytes as 16-bit numbers, whose products vpmaddwd adds without loss.
#include <immintrin.h>

#include "backend/cpu/lane_gemm.h"

namespace spark::cpu {
namespace {

constexpr int kWidth = 16, kRows = 12, kVecs = 2;

struct Halves {
  __m512i even, odd;  // bytes 0, 2 and 1, 3 of each lane
};

struct Unsigned {
  static __m512i even(__m512i lanes) { return _mm512_and_si512(lanes, _mm512_set1_epi16(0xFF)); }
  static __m512i odd(__m512i lanes) { return _mm512_srli_epi16(lanes, 8); }
};

struct Signed {
  static __m512i even(__m512i lanes) { return _mm512_srai_epi16(_mm512_slli_epi16(lanes, 8), 8); }
  static __m512i odd(__m512i lanes) { return _mm512_srai_epi16(lanes, 8); }
};

template <typename Row, typename Panel>
struct Bytes {
  using Vec = uint32_t __attribute__((vector_size(64)));
  using Lanes = Halves;
  static Lanes load_lanes(const uint32_t* from) {
    const __m512i lanes = _mm512_loadu_si512(reinterpret_cast<const __m512i*>(from));
    return {Panel::even(lanes), Panel::odd(lanes)};
  }
  static Vec dot(uint32_t row, const Lanes& lanes, Vec sum) {
    const __m512i bytes = _mm512_set1_epi32(static_cast<int>(row));
    return sum + (Vec)_mm512_madd_epi16(Row::even(bytes), lanes.even) +
           (Vec)_mm512_madd_epi16(Row::odd(bytes), lanes.odd);
  }
};

#include "backend/cpu/lane_gemm_body.h"

}  // namespace

const LaneGemm avx512_lanes = {nullptr, multiply_lanes<Bytes<Unsigned, Signed>, int32_t>,
                               multiply_lanes<Bytes<Signed, Unsigned>, int32_t>};

}  // namespace spark::cpu
