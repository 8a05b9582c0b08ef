#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/lane_product.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// Instructions multiply unsigned by signed bytes, so a side of the other kind is moved by 128, and its zero
// point with it: Σ (x − p)(w − q) = Σ xw − p·Σw − q·Σx + K·p·q, modulo 2^32.
constexpr uint32_t kFlip = 0x80, kFlipLane = 0x80808080;

// Bytes as they are, or with their highest bits flipped.
struct Bytes {
  const uint8_t* data;  // [rows, cols]
  int64_t rows, cols;
  uint32_t flip;

  // Lane `index` of a row; what lies beyond its end is 0.
  uint32_t lane(int64_t row, int64_t index) const {
    const int64_t at = 4 * index, count = std::min<int64_t>(4, cols - at);
    const uint8_t* from = data + row * cols + at;
    uint32_t lane = 0;
    if (count == 4) {
      memcpy(&lane, from, 4);
      return lane ^ flip;
    }
    memcpy(&lane, from, count);
    return (lane ^ flip) & ((1u << 8 * count) - 1);
  }
};

// Σ over a row, of bytes that are signed or not.
uint32_t row_sum(const Bytes& bytes, int64_t row, bool is_signed) {
  // Signed bytes are summed with their highest bits flipped, 128 too much each.
  const uint32_t flip = bytes.flip ^ (is_signed ? kFlipLane : 0);
  const uint8_t* data = bytes.data + row * bytes.cols;
  uint32_t sum = 0;
  int64_t i = 0;
  for (; i + 4 <= bytes.cols; i += 4) {
    uint32_t lane;
    memcpy(&lane, data + i, 4);
    lane ^= flip;
    const uint32_t pairs = (lane & 0x00FF00FF) + (lane >> 8 & 0x00FF00FF);
    sum += (pairs & 0xFFFF) + (pairs >> 16);
  }
  for (; i < bytes.cols; ++i) sum += data[i] ^ (flip & 0xFF);
  return is_signed ? sum - static_cast<uint32_t>(bytes.cols) * kFlip : sum;
}

std::vector<uint32_t> row_sums(const Bytes& bytes, bool is_signed) {
  std::vector<uint32_t> sums(bytes.rows);
  parallel_for(bytes.rows, 1 + (1 << 16) / (bytes.cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) sums[row] = row_sum(bytes, row, is_signed);
  });
  return sums;
}

// [rows, stride] lanes.
std::vector<uint32_t> to_lanes(const Bytes& bytes, int64_t lanes, int64_t stride) {
  std::vector<uint32_t> result(bytes.rows * stride);
  parallel_for(bytes.rows, 1 + (1 << 16) / (bytes.cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t l = 0; l < lanes; ++l) result[row * stride + l] = bytes.lane(row, l);
    }
  });
  return result;
}

}  // namespace

void linear_integer(const LinearIntegerArgs& args) {
  const int64_t out = args.rows, lanes = (args.cols + 3) / 4, stride = padded_lanes(lanes);
  const Bytes x{static_cast<const uint8_t*>(args.x), args.tokens, args.cols, args.x_signed ? kFlipLane : 0};
  const Bytes w{static_cast<const uint8_t*>(args.w), out, args.cols, args.w_signed ? 0 : kFlipLane};
  const std::vector<uint32_t> x_lanes = to_lanes(x, lanes, stride);
  const std::vector<uint32_t> x_sums = row_sums(x, false), w_sums = row_sums(w, true);
  LaneProduct<int32_t> product{args.tokens, out, lanes, x_lanes.data(), stride, {}, {}};
  product.panel = [&](int64_t row, int64_t lane, int64_t count, uint32_t* buffer) {
    for (int64_t i = 0; i < std::min(kPanelRows, out - row); ++i) {
      for (int64_t l = 0; l < count; ++l) buffer[l * kPanelRows + i] = w.lane(row + i, lane + l);
    }
    return buffer;
  };
  product.store = [&](int64_t t, int64_t o, int64_t count, const int32_t* sums) {
    const uint32_t p = (args.x_zero ? args.x_zero[t] : 0) + (args.x_signed ? kFlip : 0);
    for (int64_t j = o; j < o + count; ++j) {
      const uint32_t q = (args.w_zero ? args.w_zero[j] : 0) - (args.w_signed ? 0 : kFlip);
      const uint32_t corner = static_cast<uint32_t>(args.cols) * p * q;
      args.y[t * out + j] = static_cast<int32_t>(sums[j - o] - p * w_sums[j] - q * x_sums[t] + corner);
    }
  };
  lane_product(product, lane_gemm().bytes);
}

}  // namespace spark::cpu
