// vec4_neon.h: vec4.h with what arm64's baseline has; included as gemm_body.h is, and before it.
#include "backend/cpu/simd/vec4.h"

inline Vec multiply_add(Vec a, Vec b, Vec sum) { return vfmaq_f32(sum, a, b); }

inline Vec load_halves(const uint16_t* codes) {
  return (Vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(codes)));
}
