// lane_gemm_plain.cc: plain sums of products of bytes.
#include "backend/cpu/gemm/lane_gemm.h"

namespace spark::cpu {
namespace {

template <typename Row, typename Panel>
int32_t dot(uint32_t row, uint32_t lane) {
  int32_t sum = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    sum += static_cast<Row>(row >> shift) * static_cast<Panel>(lane >> shift);
  }
  return sum;
}

// Unsigned sums wrap where signed ones would be undefined.
template <typename Row, typename Panel>
void multiply_bytes(const uint32_t* rows, int64_t stride, int64_t m, const uint32_t* panel, int64_t cols,
                    int64_t lanes, int32_t* sums) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < lanes; ++l) {
      for (int64_t j = 0; j < cols; ++j) {
        const uint32_t sum = sums[i * kTile + j];
        sums[i * kTile + j] = sum + dot<Row, Panel>(rows[i * stride + l], panel[l * kPanelRows + j]);
      }
    }
  }
}

}  // namespace

const LaneGemm plain_lanes = {nullptr, multiply_bytes<uint8_t, int8_t>, multiply_bytes<int8_t, uint8_t>};

}  // namespace spark::cpu
