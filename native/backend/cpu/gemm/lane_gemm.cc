#include "backend/cpu/gemm/lane_gemm.h"

#include <cmath>
#include <vector>

#include "core/cpu_isa.h"
#include "core/float_formats.h"

namespace spark::cpu {
namespace {

constexpr int64_t kTestRows = 37, kTestLanes = 41, kTestStride = 48;  // blocks of every size, a padded tail

// Lanes whose numbers make `pair` or bytes of small size.
std::vector<uint32_t> test_lanes(int64_t count, uint32_t mask, uint32_t base) {
  std::vector<uint32_t> lanes(count);
  uint32_t state = 1;
  for (uint32_t& lane : lanes) {
    state = state * 1664525 + 1013904223;
    lane = ((state >> 3) & mask) | base;
  }
  return lanes;
}

template <typename Sum, typename Dot>
bool agrees(MultiplyLanes<Sum> multiply, std::vector<uint32_t> rows, const std::vector<uint32_t>& panel,
            double tolerance, const Dot& dot) {
  for (int64_t i = 0; i < kTestRows; ++i) {
    for (int64_t l = kTestLanes; l < kTestStride; ++l) rows[i * kTestStride + l] = 0;
  }
  std::vector<Sum> sums(kTestRows * kTile, Sum{3});
  multiply(rows.data(), kTestStride, kTestRows, panel.data(), kPanelRows, kTestLanes, sums.data());
  for (int64_t i = 0; i < kTestRows; ++i) {
    for (int64_t j = 0; j < kPanelRows; ++j) {
      double sum = 3;
      for (int64_t l = 0; l < kTestLanes; ++l) {
        sum += dot(rows[i * kTestStride + l], panel[l * kPanelRows + j]);
      }
      if (!(std::abs(sum - sums[i * kTile + j]) <= tolerance)) return false;
    }
  }
  return true;
}

double dot_pairs(uint32_t a, uint32_t b) {
  return static_cast<double>(bits_float(a << 16)) * bits_float(b << 16) +
         static_cast<double>(bits_float(a & 0xFFFF0000)) * bits_float(b & 0xFFFF0000);
}

template <typename A, typename B>
double dot_bytes(uint32_t a, uint32_t b) {
  double sum = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    sum += static_cast<A>(a >> shift) * static_cast<B>(b >> shift);
  }
  return sum;
}

// Products of numbers around 1 and of any bytes.
bool passes_test(const LaneGemm& gemm) {
  constexpr uint32_t kAroundOne = 0x3F803F80, kSignAndMantissa = 0x807F807F;
  const auto rows = [](uint32_t mask, uint32_t base) {
    return test_lanes(kTestRows * kTestStride, mask, base);
  };
  const auto panel = [](uint32_t mask, uint32_t base) {
    return test_lanes(kTestLanes * kPanelRows, mask, base);
  };
  if (gemm.bf16 && !agrees(gemm.bf16, rows(kSignAndMantissa, kAroundOne), panel(kSignAndMantissa, kAroundOne),
                           1e-3, dot_pairs)) {
    return false;
  }
  return agrees(gemm.bytes, rows(~0u, 0), panel(~0u, 0), 0, dot_bytes<uint8_t, int8_t>) &&
         agrees(gemm.signed_bytes, rows(~0u, 0), panel(~0u, 0), 0, dot_bytes<int8_t, uint8_t>);
}

struct Selected {
  const LaneGemm* gemm;
  const char* problem;
};

Selected select() {
  const char* problem = "";
#if defined(__x86_64__)
  const CpuMatrixIsa matrix = cpu_matrix_isa();
  if (matrix == CpuMatrixIsa::kAmx) {
    if (passes_test(amx_lanes)) return {&amx_lanes, problem};
    problem = "AMX gives wrong sums on this machine; AVX-512 is used";
  }
  if (matrix != CpuMatrixIsa::kNone) {
    if (passes_test(avx512bf16_lanes)) return {&avx512bf16_lanes, problem};
    problem = "AVX-512 BF16 or VNNI gives wrong sums on this machine; plain AVX-512 is used";
  }
  if (cpu_isa() == CpuIsa::kAvx512) return {&avx512_lanes, problem};
  if (cpu_isa() == CpuIsa::kAvx2) return {&avx2_lanes, problem};
#elif defined(__aarch64__)
  if (cpu_matrix_isa() == CpuMatrixIsa::kNeonBf16) {
    if (passes_test(neonbf16_lanes)) return {&neonbf16_lanes, problem};
    problem = "the bf16 or i8mm instructions give wrong sums on this machine; NEON is used";
  }
  if (cpu_isa() == CpuIsa::kNeon) return {&neon_lanes, problem};
#endif
  return {&plain_lanes, problem};
}

const Selected& selected() {
  static const Selected result = select();
  return result;
}

}  // namespace

const LaneGemm& lane_gemm() { return *selected().gemm; }
const char* bf16_support() {
#if defined(__x86_64__)
  if (&lane_gemm() == &amx_lanes) return "matrix";
#endif
  return lane_gemm().bf16 ? "simd" : "none";
}

const char* lane_gemm_problem() { return selected().problem; }

}  // namespace spark::cpu
