// strided.h: loops over operands that are views: any strides, any order of axes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "backend/backend.h"
#include "core/thread_pool.h"

namespace spark::cpu {

// Calls body(T{}) with an integer as large as an element: elements of the same size are moved alike.
template <typename Body>
void with_bits(DType dtype, const Body& body) {
  switch (dtype_bits(dtype)) {
    case 64:
      return body(uint64_t{});
    case 32:
      return body(uint32_t{});
    case 16:
      return body(uint16_t{});
    default:
      return body(uint8_t{});
  }
}

// Where N operands are at one index of some axes; moves on in row-major order.
template <size_t N>
class Cursor {
 public:
  // At the index that is `position` in row-major order. Axes without elements have none: it is then at 0.
  Cursor(const Axes& axes, const std::array<const Strides*, N>& strides, int64_t position)
      : axes_(axes), strides_(strides) {
    for (int64_t axis = axes.count - 1; axis >= 0; --axis) {
      const int64_t size = std::max<int64_t>(axes.size[axis], 1);
      index_[axis] = position % size;
      position /= size;
      for (size_t n = 0; n < N; ++n) offset[n] += index_[axis] * strides[n]->step[axis];
    }
  }

  void next() {
    for (int64_t axis = axes_.count - 1; axis >= 0; --axis) {
      const bool carry = ++index_[axis] == axes_.size[axis];
      const int64_t steps = carry ? 1 - axes_.size[axis] : 1;
      for (size_t n = 0; n < N; ++n) offset[n] += steps * strides_[n]->step[axis];
      if (!carry) return;
      index_[axis] = 0;
    }
  }

  std::array<int64_t, N> offset{};

 private:
  const Axes& axes_;
  std::array<const Strides*, N> strides_;
  int64_t index_[kMaxAxes] = {};
};

constexpr int64_t kGrainElements = 1 << 14;  // worth waking a thread for

// Splits `shape` into rows along its last axis and calls body(row, count, offsets, steps) for each, from
// several threads: the row-major number of the row, its length, and where each operand starts and how far it
// moves.
template <size_t N, typename Body>
void for_each_row(const Axes& shape, const std::array<const Strides*, N>& strides, const Body& body) {
  const int64_t total = numel(shape);
  if (total == 0) return;
  const int64_t count = shape.count == 0 ? 1 : shape.size[shape.count - 1];
  std::array<int64_t, N> steps{};
  for (size_t n = 0; n < N && shape.count > 0; ++n) steps[n] = strides[n]->step[shape.count - 1];
  Axes outer = shape;
  outer.count = std::max<int64_t>(shape.count - 1, 0);
  parallel_for(total / count, 1 + kGrainElements / count, [&](int64_t begin, int64_t end) {
    Cursor<N> cursor(outer, strides, begin);
    for (int64_t row = begin; row < end; ++row, cursor.next()) body(row, count, cursor.offset, steps);
  });
}

}  // namespace spark::cpu
