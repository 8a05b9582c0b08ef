#include <algorithm>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/lane_product.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// Instructions multiply unsigned by signed bytes, so a side of the other kind is moved by 128, and its zero
// point with it: Σ (x − p)(w − q) = Σ xw − p·Σw − q·Σx + K·p·q, modulo 2^32.
constexpr uint8_t kFlip = 0x80;

// Rows of bytes as lanes, with the sum of each row.
struct Codes {
  std::vector<uint32_t> lanes;  // [rows, stride]
  std::vector<uint32_t> sums;   // [rows]
  int64_t stride;
};

template <typename Byte>
Codes to_lanes(const void* from, int64_t rows, int64_t cols, bool flip) {
  const int64_t stride = padded_lanes((cols + 3) / 4);
  Codes codes{std::vector<uint32_t>(rows * stride), std::vector<uint32_t>(rows), stride};
  parallel_for(rows, 1 + (1 << 16) / (cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const uint8_t* in = static_cast<const uint8_t*>(from) + row * cols;
      auto* out = reinterpret_cast<uint8_t*>(codes.lanes.data() + row * stride);
      uint32_t sum = 0;
      for (int64_t i = 0; i < cols; ++i) {
        out[i] = flip ? in[i] ^ kFlip : in[i];
        sum += static_cast<Byte>(out[i]);
      }
      codes.sums[row] = sum;
    }
  });
  return codes;
}

}  // namespace

void linear_integer(const LinearIntegerArgs& args) {
  const int64_t out = args.rows;
  const Codes x = to_lanes<uint8_t>(args.x, args.tokens, args.cols, args.x_signed);
  const Codes w = to_lanes<int8_t>(args.w, out, args.cols, !args.w_signed);
  LaneProduct<int32_t> product{args.tokens, out, (args.cols + 3) / 4, x.lanes.data(), x.stride, {}, {}};
  product.panel = [&](int64_t col, int64_t lane, int64_t count, uint32_t* buffer) {
    for (int64_t i = 0; i < std::min(kPanelRows, out - col); ++i) {
      const uint32_t* row = w.lanes.data() + (col + i) * w.stride + lane;
      for (int64_t l = 0; l < count; ++l) buffer[l * kPanelRows + i] = row[l];
    }
    return buffer;
  };
  product.store = [&](int64_t t, int64_t o, int64_t count, const int32_t* sums) {
    const uint32_t p = (args.x_zero ? args.x_zero[t] : 0) + (args.x_signed ? kFlip : 0);
    for (int64_t j = o; j < o + count; ++j) {
      const uint32_t q = (args.w_zero ? args.w_zero[j] : 0) - (args.w_signed ? 0 : kFlip);
      const uint32_t sum =
          sums[j - o] - p * w.sums[j] - q * x.sums[t] + static_cast<uint32_t>(args.cols) * p * q;
      args.y[t * out + j] = static_cast<int32_t>(sum);
    }
  };
  lane_product(product, lane_gemm().bytes);
}

}  // namespace spark::cpu
