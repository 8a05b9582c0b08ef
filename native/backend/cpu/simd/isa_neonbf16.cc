// isa_neonbf16.cc: arm64 BF16: bfdot.
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

#include "backend/cpu/gemm/dot_kernels_body.h"

}  // namespace

const DotKernels neonbf16_dot_kernels = {.bf16 = multiply_dot_groups<Pairs, float>};

}  // namespace spark::cpu
