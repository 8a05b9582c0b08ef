// plain.cc: the baseline of the architecture (SSE2 on x64). It has no fused multiply-add.
#include "backend/cpu/gemm.h"
#include "core/float_formats.h"

namespace spark::cpu {
namespace {

constexpr int kWidth = 4, kRows = 2, kVecs = 4;
using Vec = float __attribute__((vector_size(16)));

inline Vec multiply_add(Vec a, Vec b, Vec sum) { return a * b + sum; }

#include "backend/cpu/isa/transpose4.h"
#include "backend/cpu/isa/kernels.h"

}  // namespace

const Gemm plain_gemm = {"plain", decode, pack_rows, pack_sliver, multiply};

}  // namespace spark::cpu
