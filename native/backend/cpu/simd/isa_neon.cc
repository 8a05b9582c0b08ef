// isa_neon.cc: arm64, whose baseline has a fused multiply-add and 32 registers.
#include <arm_neon.h>

#include "backend/block_panels.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/float_formats.h"

namespace spark::cpu {
namespace {

namespace vec {

#include "backend/cpu/simd/vec4_neon.h"

constexpr int kRows = 6, kVecs = 4;

#include "backend/cpu/gemm/gemm_body.h"
//
#include "backend/cpu/simd/add_products4.h"
//
#include "backend/cpu/gemm/multiply_codes.h"

}  // namespace vec

// Bytes as 16-bit numbers; arm64's baseline has no products of four.
namespace dot {

constexpr int kWidth = 4, kRows = 4, kVecs = 2;

struct Unsigned {
  static int16x8_t even(int16x8_t groups) { return vandq_s16(groups, vdupq_n_s16(0xFF)); }
  static int16x8_t odd(int16x8_t groups) {
    return vreinterpretq_s16_u16(vshrq_n_u16(vreinterpretq_u16_s16(groups), 8));
  }
};

struct Signed {
  static int16x8_t even(int16x8_t groups) { return vshrq_n_s16(vshlq_n_s16(groups, 8), 8); }
  static int16x8_t odd(int16x8_t groups) { return vshrq_n_s16(groups, 8); }
};

template <typename Row, typename Panel>
struct Bytes {
  using Vec = uint32x4_t;
  struct Groups {
    int16x8_t even, odd;  // bytes 0, 2 and 1, 3 of each group
  };
  static Groups load_groups(const uint32_t* from) {
    const int16x8_t groups = vreinterpretq_s16_u32(vld1q_u32(from));
    return {Panel::even(groups), Panel::odd(groups)};
  }
  static Vec sum_products(int16x8_t a, int16x8_t b) {
    const int32x4_t low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
    return vreinterpretq_u32_s32(vpaddq_s32(low, vmull_high_s16(a, b)));
  }
  static Vec dot(uint32_t row, const Groups& groups, Vec sum) {
    const int16x8_t bytes = vreinterpretq_s16_u32(vdupq_n_u32(row));
    return sum + sum_products(Row::even(bytes), groups.even) + sum_products(Row::odd(bytes), groups.odd);
  }
};

#include "backend/cpu/gemm/dot_kernels_body.h"

constexpr DotKernels kKernels = {
    .bf16 = nullptr,
    .codes = vec::multiply_codes,
    .bytes = multiply_dot_groups<Bytes<Unsigned, Signed>, int32_t>,
    .signed_bytes = multiply_dot_groups<Bytes<Signed, Unsigned>, int32_t>,
};

}  // namespace dot

}  // namespace
}  // namespace spark::cpu

#include "backend/cpu/simd/isa_body.h"

namespace spark::cpu {
const CpuKernels neon_kernels = kCpuKernels;
}
