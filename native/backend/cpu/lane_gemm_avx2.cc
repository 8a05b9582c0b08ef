// lane_gemm_avx2.cc: bytes as 16-bit numbers, whose products vpmaddwd adds without loss.
#include <immintrin.h>

#include "backend/cpu/lane_gemm.h"

namespace spark::cpu {
namespace {

constexpr int kWidth = 8, kRows = 4, kVecs = 2;

struct Halves {
  __m256i even, odd;  // bytes 0, 2 and 1, 3 of each lane
};

struct Unsigned {
  static __m256i even(__m256i lanes) { return _mm256_and_si256(lanes, _mm256_set1_epi16(0xFF)); }
  static __m256i odd(__m256i lanes) { return _mm256_srli_epi16(lanes, 8); }
};

struct Signed {
  static __m256i even(__m256i lanes) { return _mm256_srai_epi16(_mm256_slli_epi16(lanes, 8), 8); }
  static __m256i odd(__m256i lanes) { return _mm256_srai_epi16(lanes, 8); }
};

template <typename Row, typename Panel>
struct Bytes {
  using Vec = uint32_t __attribute__((vector_size(32)));
  using Lanes = Halves;
  static Lanes load_lanes(const uint32_t* from) {
    const __m256i lanes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {Panel::even(lanes), Panel::odd(lanes)};
  }
  static Vec dot(uint32_t row, const Lanes& lanes, Vec sum) {
    const __m256i bytes = _mm256_set1_epi32(static_cast<int>(row));
    return sum + (Vec)_mm256_madd_epi16(Row::even(bytes), lanes.even) +
           (Vec)_mm256_madd_epi16(Row::odd(bytes), lanes.odd);
  }
};

#include "backend/cpu/lane_gemm_body.h"

}  // namespace

const LaneGemm avx2_lanes = {nullptr, multiply_lanes<Bytes<Unsigned, Signed>, int32_t>,
                             multiply_lanes<Bytes<Signed, Unsigned>, int32_t>};

}  // namespace spark::cpu
