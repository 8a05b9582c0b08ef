// gemm_neon.cc: arm64, whose baseline has a fused multiply-add and 32 registers.
#include <arm_neon.h>

#include "backend/cpu/gemm/gemm.h"
#include "core/float_formats.h"

namespace spark::cpu {
namespace {

#include "backend/cpu/gemm/gemm_vec4.h"

constexpr int kRows = 6, kVecs = 4;
inline Vec multiply_add(Vec a, Vec b, Vec sum) { return vfmaq_f32(sum, a, b); }

inline Vec load_halves(const uint16_t* codes) {
  return (Vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(codes)));
}

#include "backend/cpu/gemm/gemm_body.h"

}  // namespace

const Gemm neon_gemm = {kWidth, pack_rows, pack_sliver,    pack_left,       multiply, finish,
                        settle, correlate, depthwise,      depthwise_lanes, largest,  add_apart,
                        divide, stage,     winograd_input, winograd_output, dots,     add_low_rank};

}  // namespace spark::cpu
