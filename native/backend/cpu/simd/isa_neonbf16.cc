// isa_neonbf16.cc: arm64 BF16 and I8MM: bfdot and usdot.
#include <arm_neon.h>

#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

constexpr int kWidth = 4, kRows = 6, kVecs = 4;

struct Pairs {
  using Vec = float32x4_t;
  using Groups = bfloat16x8_t;
  static Groups load_groups(const uint32_t* from) { return vreinterpretq_bf16_u32(vld1q_u32(from)); }
  static Vec dot(uint32_t row, Groups groups, Vec sum) {
    return vbfdotq_f32(sum, vreinterpretq_bf16_u32(vdupq_n_u32(row)), groups);
  }
};

struct Bytes {
  using Vec = uint32x4_t;
  using Groups = int8x16_t;
  static Groups load_groups(const uint32_t* from) { return vreinterpretq_s8_u32(vld1q_u32(from)); }
  static Vec dot(uint32_t row, Groups groups, Vec sum) {
    const int32x4_t start = vreinterpretq_s32_u32(sum);
    return vreinterpretq_u32_s32(vusdotq_s32(start, vreinterpretq_u8_u32(vdupq_n_u32(row)), groups));
  }
};

struct SignedBytes {
  using Vec = uint32x4_t;
  using Groups = uint8x16_t;
  static Groups load_groups(const uint32_t* from) { return vreinterpretq_u8_u32(vld1q_u32(from)); }
  static Vec dot(uint32_t row, Groups groups, Vec sum) {
    const int32x4_t start = vreinterpretq_s32_u32(sum);
    return vreinterpretq_u32_s32(vusdotq_s32(start, groups, vreinterpretq_s8_u32(vdupq_n_u32(row))));
  }
};

#include "backend/cpu/gemm/dot_kernels_body.h"

}  // namespace

const DotKernels neonbf16_dot_kernels = {
    .bf16 = multiply_dot_groups<Pairs, float>,
    .bytes = multiply_dot_groups<Bytes, int32_t>,
    .signed_bytes = multiply_dot_groups<SignedBytes, int32_t>,
};

}  // namespace spark::cpu
