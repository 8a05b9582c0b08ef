// linear_integer.cc: int8 linear layers as dot-product GEMM with zero points.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/dot_gemm.h"
#include "backend/cpu/gemm/integer_result.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// Instructions multiply unsigned by signed bytes, so a side of the other kind is moved by 128, and its zero
// point with it: Σ (x − p)(w − q) = Σ xw − p·Σw − q·Σx + K·p·q, modulo 2^32.
constexpr uint32_t kFlip = 0x80, kFlipGroup = 0x80808080;

// Bytes as they are, or with their highest bits flipped.
struct Bytes {
  const uint8_t* data;  // [rows, cols]
  int64_t rows, cols;
  uint32_t flip;

  // Group `index` of a row; what lies beyond its end is 0.
  uint32_t group(int64_t row, int64_t index) const {
    const int64_t at = 4 * index, count = std::min<int64_t>(4, cols - at);
    const uint8_t* from = data + row * cols + at;
    uint32_t group = 0;
    if (count == 4) {
      memcpy(&group, from, 4);
      return group ^ flip;
    }
    memcpy(&group, from, count);
    return (group ^ flip) & ((1u << 8 * count) - 1);
  }
};

// Σ over a row, of bytes that are signed or not.
uint32_t row_sum(const Bytes& bytes, int64_t row, bool is_signed) {
  // Signed bytes are summed with their highest bits flipped, 128 too much each.
  const uint32_t flip = bytes.flip ^ (is_signed ? kFlipGroup : 0);
  const uint8_t* data = bytes.data + row * bytes.cols;
  uint32_t sum = 0;
  int64_t i = 0;
  for (; i + 4 <= bytes.cols; i += 4) {
    uint32_t group;
    memcpy(&group, data + i, 4);
    group ^= flip;
    const uint32_t pairs = (group & 0x00FF00FF) + (group >> 8 & 0x00FF00FF);
    sum += (pairs & 0xFFFF) + (pairs >> 16);
  }
  for (; i < bytes.cols; ++i) sum += data[i] ^ (flip & 0xFF);
  return is_signed ? sum - static_cast<uint32_t>(bytes.cols) * kFlip : sum;
}

std::vector<uint32_t> row_sums(const Bytes& bytes, bool is_signed) {
  std::vector<uint32_t> sums(bytes.rows);
  parallel_for(bytes.rows, grain_for(bytes.cols, 1 << 16), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) sums[row] = row_sum(bytes, row, is_signed);
  });
  return sums;
}

// [rows, stride] groups.
std::vector<uint32_t> to_dot_groups(const Bytes& bytes, int64_t groups, int64_t stride) {
  std::vector<uint32_t> result(bytes.rows * stride);
  parallel_for(bytes.rows, grain_for(bytes.cols, 1 << 16), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t l = 0; l < groups; ++l) result[row * stride + l] = bytes.group(row, l);
    }
  });
  return result;
}

// As row_sums, of a packed weight.
std::vector<uint32_t> packed_sums(const LinearIntegerArgs& args) {
  const int64_t groups = (args.cols + 3) / 4;
  std::vector<uint32_t> sums(args.rows);
  parallel_for(args.rows, grain_for(args.cols, 1 << 16), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const int8_t* panel = static_cast<const int8_t*>(args.w) + (o - o % kPanelRows) * groups * 4;
      for (int64_t i = 0; i < args.cols; ++i) {
        sums[o] += panel[i / 4 * kPanelRows * 4 + o % kPanelRows * 4 + i % 4];
      }
    }
  });
  return sums;
}

// What the sums of a product lack: bias and zero points.
class Corrections {
 public:
  Corrections(const LinearIntegerArgs& args, const Bytes& x, const Bytes& w)
      : args_(args), has_x_(args.x_zero || args.x_signed), has_w_(args.w_zero || !args.w_signed) {
    if (has_w_) x_sums_ = row_sums(x, false);
    if (has_x_ && !args.w_sum) w_sums_ = args.packed ? packed_sums(args) : row_sums(w, true);
  }

  void fill(int64_t t, int64_t o, int64_t count, uint32_t* shift) const {
    for (int64_t j = 0; j < count; ++j) shift[j] = args_.bias ? args_.bias[o + j] : 0;
    const uint32_t p = (args_.x_zero ? args_.x_zero[t] : 0) + (args_.x_signed ? kFlip : 0);
    for (int64_t j = 0; has_x_ && j < count; ++j) shift[j] -= p * w_sum(o + j);
    if (!has_w_) return;
    const uint32_t rest = static_cast<uint32_t>(args_.cols) * p - x_sums_[t];
    for (int64_t j = 0; j < count; ++j) {
      shift[j] += ((args_.w_zero ? args_.w_zero[o + j] : 0) - (args_.w_signed ? 0 : kFlip)) * rest;
    }
  }

 private:
  // Of the bytes that are multiplied.
  uint32_t w_sum(int64_t o) const {
    if (!args_.w_sum) return w_sums_[o];
    return args_.w_sum[o] - (args_.w_signed ? 0 : kFlip) * static_cast<uint32_t>(args_.cols);
  }

  const LinearIntegerArgs& args_;
  bool has_x_, has_w_;
  std::vector<uint32_t> x_sums_, w_sums_;
};

}  // namespace

void linear_integer(const LinearIntegerArgs& args) {
  const int64_t out = args.rows, groups = (args.cols + 3) / 4, stride = padded_dot_groups(groups);
  const Bytes x{static_cast<const uint8_t*>(args.x), args.tokens, args.cols, args.x_signed ? kFlipGroup : 0};
  const Bytes w{static_cast<const uint8_t*>(args.w), out, args.cols, args.w_signed ? 0 : kFlipGroup};
  const std::vector<uint32_t> x_groups = to_dot_groups(x, groups, stride);
  const Corrections corrections(args, x, w);
  DotGemm<int32_t> product{args.tokens, out, groups, x_groups.data(), stride, {}, {}};
  product.panel = [&](int64_t row, int64_t group, int64_t count, uint32_t* buffer) -> const uint32_t* {
    if (args.packed) return static_cast<const uint32_t*>(args.w) + row * groups + group * kPanelRows;
    for (int64_t i = 0; i < std::min(kPanelRows, out - row); ++i) {
      for (int64_t l = 0; l < count; ++l) buffer[l * kPanelRows + i] = w.group(row + i, group + l);
    }
    return buffer;
  };
  product.store = [&](int64_t t, int64_t o, int64_t count, const int32_t* sums) {
    uint32_t shift[kTile];
    corrections.fill(t, o, count, shift);
    const int64_t at = t * out + o;
    if (args.result.scale) {
      kernels().bytes.requantize_each(sums, count, shift, args.result.scale + o, rounding_of(args.result),
                                      static_cast<uint8_t*>(args.result.y) + at);
      return;
    }
    int32_t* y = static_cast<int32_t*>(args.result.y) + at;
    for (int64_t j = 0; j < count; ++j) {
      y[j] = static_cast<int32_t>(static_cast<uint32_t>(sums[j]) + shift[j]);
    }
  };
  dot_gemm(product, kernels().dot.bytes);
}

}  // namespace spark::cpu
