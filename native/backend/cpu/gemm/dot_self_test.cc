// dot_self_test.cc: a self-test of the dot-product kernels of this CPU.
#include "backend/cpu/gemm/dot_self_test.h"

#include <cmath>
#include <vector>

#include "core/float_formats.h"

namespace spark::cpu {
namespace {

constexpr int64_t kTestRows = 37, kTestDotGroups = 41,
                  kTestStride = 48;  // blocks of every size, a padded tail

// Groups whose numbers make `pair` or bytes of small size.
std::vector<uint32_t> test_groups(int64_t count, uint32_t mask, uint32_t base) {
  std::vector<uint32_t> groups(count);
  uint32_t state = 1;
  for (uint32_t& group : groups) {
    state = state * 1664525 + 1013904223;
    group = ((state >> 3) & mask) | base;
  }
  return groups;
}

template <typename Sum, typename Dot>
bool agrees(MultiplyDots<Sum> multiply, std::vector<uint32_t> rows, const std::vector<uint32_t>& panel,
            double tolerance, const Dot& dot) {
  for (int64_t i = 0; i < kTestRows; ++i) {
    for (int64_t l = kTestDotGroups; l < kTestStride; ++l) rows[i * kTestStride + l] = 0;
  }
  std::vector<Sum> sums(kTestRows * kTile, Sum{3});
  multiply(rows.data(), kTestStride, kTestRows, panel.data(), kPanelRows, kTestDotGroups, sums.data());
  for (int64_t i = 0; i < kTestRows; ++i) {
    for (int64_t j = 0; j < kPanelRows; ++j) {
      double sum = 3;
      for (int64_t l = 0; l < kTestDotGroups; ++l) {
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

}  // namespace

bool passes_self_test(const DotKernels& gemm) {
  constexpr uint32_t kAroundOne = 0x3F803F80, kSignAndMantissa = 0x807F807F;
  const auto rows = [](uint32_t mask, uint32_t base) {
    return test_groups(kTestRows * kTestStride, mask, base);
  };
  const auto panel = [](uint32_t mask, uint32_t base) {
    return test_groups(kTestDotGroups * kPanelRows, mask, base);
  };
  const auto values = rows(kSignAndMantissa, kAroundOne), value_panel = panel(kSignAndMantissa, kAroundOne);
  return (!gemm.bf16 || agrees(gemm.bf16, values, value_panel, 1e-3, dot_pairs)) &&
         (!gemm.bytes || agrees(gemm.bytes, rows(~0u, 0), panel(~0u, 0), 0, dot_bytes<uint8_t, int8_t>)) &&
         (!gemm.signed_bytes ||
          agrees(gemm.signed_bytes, rows(~0u, 0), panel(~0u, 0), 0, dot_bytes<int8_t, uint8_t>));
}

}  // namespace spark::cpu
