// dot_self_test.cc: a self-test of the dot-product kernels of this CPU.
#include "backend/cpu/gemm/dot_self_test.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "backend/block_panels.h"
#include "backend/integer_rows.h"
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

// A panel of any codes with the scale 2, times rows of any bytes.
template <typename F>
bool codes_agree(MultiplyCodes multiply, DType dtype) {
  using Panel = BlockPanel<F>;
  constexpr int64_t kCols = 3 * kIntegerCols, kCount = 13, kRuns = kCols / kIntegerCols;
  const std::vector<uint32_t> words = test_groups(Panel::bytes(kCols) / 4, ~0u, 0);
  std::vector<uint8_t> panel(Panel::bytes(kCols));
  std::memcpy(panel.data(), words.data(), panel.size());
  constexpr uint16_t kTwo = 0x4000;
  for (int64_t at = 0; at < kRuns * kPanelRows; ++at) {
    std::memcpy(&panel[at / kPanelRows * Panel::kBytes + at % kPanelRows * 2], &kTwo, 2);
  }
  const auto level = [&](int64_t line, int64_t col) {
    const int64_t within = col % Panel::kCols, word = within / Panel::kLowCols * kPanelRows + line;
    const int code = panel[col / Panel::kCols * Panel::kBytes + Panel::kLowWords + word * 4 + within % 4];
    const int64_t shift = within % Panel::kLowCols / 4 * F::kLow;
    return blocks::level_of<F>(code >> shift & ((1 << F::kLow) - 1));
  };
  std::vector<uint32_t> groups = test_groups(kCount * kCols / 4, 0x7F7F7F7F, 0);
  auto* bytes = reinterpret_cast<int8_t*>(groups.data());
  std::vector<int32_t> byte_sums(kCount * kRuns);
  for (int64_t i = 0; i < kCount * kCols; ++i) {
    if (i % 3 == 0) bytes[i] = static_cast<int8_t>(-bytes[i]);
    byte_sums[i / kIntegerCols] += bytes[i];
  }
  const std::vector<float> scales(kCount * kRuns, 1.0f);
  const Weight weight{dtype, kPanelRows, kCols, panel.data(), nullptr, nullptr, 0, true};
  for (const int64_t count : {int64_t{1}, kCount}) {
    std::vector<float> sums(count * kPanelRows);
    multiply(weight, 0, {count, groups.data(), kCols / 4, scales.data(), kRuns, byte_sums.data(), kRuns},
             sums.data());
    for (int64_t i = 0; i < count * kPanelRows; ++i) {
      float sum = 0;
      for (int64_t col = 0; col < kCols; ++col) {
        sum += 2 * level(i % kPanelRows, col) * bytes[i / kPanelRows * kCols + col];
      }
      if (sum != sums[i]) return false;
    }
  }
  return true;
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
         (!gemm.codes || (codes_agree<blocks::Q4_0>(gemm.codes, DType::kQ4_0) &&
                          codes_agree<blocks::Q8_0>(gemm.codes, DType::kQ8_0))) &&
         (!gemm.bytes || agrees(gemm.bytes, rows(~0u, 0), panel(~0u, 0), 0, dot_bytes<uint8_t, int8_t>)) &&
         (!gemm.signed_bytes ||
          agrees(gemm.signed_bytes, rows(~0u, 0), panel(~0u, 0), 0, dot_bytes<int8_t, uint8_t>));
}

}  // namespace spark::cpu
