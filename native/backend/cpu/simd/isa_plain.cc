// isa_plain.cc: the baseline of the architecture (SSE2 on x64). It has no fused multiply-add.
#include "backend/block_panels.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/float_formats.h"

namespace spark::cpu {
namespace {

namespace vec {

#include "backend/cpu/simd/vec4.h"

constexpr int kRows = 2, kVecs = 4;
inline Vec multiply_add(Vec a, Vec b, Vec sum) { return a * b + sum; }

template <typename Format>
inline Vec widen(Bits code);
inline Vec load_halves(const uint16_t* codes) { return widen<F16>(load_codes(codes)); }

#include "backend/cpu/gemm/gemm_body.h"
//
#include "backend/cpu/simd/add_products4.h"
//
#include "backend/cpu/gemm/multiply_codes.h"

}  // namespace vec

namespace dot {

template <typename Row, typename Panel>
int32_t dot(uint32_t row, uint32_t group) {
  int32_t sum = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    sum += static_cast<Row>(row >> shift) * static_cast<Panel>(group >> shift);
  }
  return sum;
}

// Unsigned sums wrap where signed ones would be undefined.
template <typename Row, typename Panel>
void multiply_bytes(const uint32_t* rows, int64_t stride, int64_t m, const uint32_t* panel, int64_t cols,
                    int64_t groups, int32_t* sums) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < groups; ++l) {
      for (int64_t j = 0; j < cols; ++j) {
        const uint32_t sum = sums[i * kTile + j];
        sums[i * kTile + j] = sum + dot<Row, Panel>(rows[i * stride + l], panel[l * kPanelRows + j]);
      }
    }
  }
}

constexpr DotKernels kKernels = {
    .bf16 = nullptr,
    .codes = vec::multiply_codes,
    .bytes = multiply_bytes<uint8_t, int8_t>,
    .signed_bytes = multiply_bytes<int8_t, uint8_t>,
};

}  // namespace dot

}  // namespace
}  // namespace spark::cpu

#include "backend/cpu/simd/isa_body.h"

namespace spark::cpu {
const CpuKernels plain_kernels = kCpuKernels;
}
