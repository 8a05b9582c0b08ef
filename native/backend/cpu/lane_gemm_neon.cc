// lane_gemm_neon.cc: bytes as 16-bit numbers; arm64's baseline has no products of four.
#include <arm_neon.h>

#include "backend/cpu/lane_gemm.h"

namespace spark::cpu {
namespace {

constexpr int kWidth = 4, kRows = 4, kVecs = 2;

struct Bytes {
  using Vec = uint32x4_t;
  struct Lanes {
    int16x8_t even, odd;  // bytes 0, 2 and 1, 3 of each lane
  };
  static Lanes load_lanes(const uint32_t* from) {
    const int16x8_t lanes = vreinterpretq_s16_u32(vld1q_u32(from));
    return {vshrq_n_s16(vshlq_n_s16(lanes, 8), 8), vshrq_n_s16(lanes, 8)};
  }
  static Vec sum_products(int16x8_t a, int16x8_t b) {
    const int32x4_t low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
    return vreinterpretq_u32_s32(vpaddq_s32(low, vmull_high_s16(a, b)));
  }
  static Vec dot(uint32_t row, const Lanes& lanes, Vec sum) {
    const int16x8_t even = vreinterpretq_s16_u32(vdupq_n_u32(row & 0x00FF00FF));
    const int16x8_t odd = vreinterpretq_s16_u32(vdupq_n_u32(row >> 8 & 0x00FF00FF));
    return sum + sum_products(even, lanes.even) + sum_products(odd, lanes.odd);
  }
};

#include "backend/cpu/lane_gemm_body.h"

}  // namespace

const LaneGemm neon_lanes = {nullptr, multiply_lanes<Bytes, int32_t>};

}  // namespace spark::cpu
