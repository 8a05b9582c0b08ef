// gemm_plain.cc: the baseline of the architecture (SSE2 on x64). It has no fused multiply-add.
#include "backend/cpu/gemm/gemm.h"
#include "core/float_formats.h"

namespace spark::cpu {
namespace {

#include "backend/cpu/gemm/gemm_vec4.h"

constexpr int kRows = 2, kVecs = 4;
inline Vec multiply_add(Vec a, Vec b, Vec sum) { return a * b + sum; }

template <typename Format>
inline Vec widen(Bits code);
inline Vec load_halves(const uint16_t* codes) { return widen<F16>(load_codes(codes)); }

#include "backend/cpu/gemm/gemm_body.h"

}  // namespace

const Gemm plain_gemm = {kWidth, pack_rows, pack_sliver,    pack_left,       multiply, finish,
                         settle, correlate, depthwise,      depthwise_lanes, largest,  add_apart,
                         divide, stage,     winograd_input, winograd_output, dots,     add_low_rank};

}  // namespace spark::cpu
