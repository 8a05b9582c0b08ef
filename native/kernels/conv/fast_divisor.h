// fast_divisor.h: divisions of indices by a size that only the launcher knows, as a multiplication and a
// shift (Granlund and Montgomery 1994).
#pragma once

#include <cstdint>

#include "core/float_formats.h"

namespace spark {

// Divides numbers from 0 to 2^31 - 1.
class FastDivisor {
 public:
  FastDivisor() = default;
  // divisor is in [1, 2^30].
  explicit FastDivisor(int64_t divisor) : divisor_(static_cast<uint32_t>(divisor)) {
    while (int64_t{1} << shift_ < divisor) ++shift_;
    multiplier_ = static_cast<uint32_t>((((uint64_t{1} << shift_) - divisor_) << 32) / divisor_ + 1);
  }

  SPARK_HOST_DEVICE int32_t operator()(int32_t number) const {
    const uint32_t n = static_cast<uint32_t>(number);
    const uint32_t high = static_cast<uint32_t>(uint64_t{n} * multiplier_ >> 32);
    return static_cast<int32_t>((high + n) >> shift_);
  }
  SPARK_HOST_DEVICE int32_t divisor() const { return static_cast<int32_t>(divisor_); }

 private:
  uint32_t divisor_ = 1, multiplier_ = 1, shift_ = 0;
};

// Sizes along three axes.
struct FastAxes {
  FastDivisor size[3];

  FastAxes() = default;
  explicit FastAxes(const int64_t (&sizes)[3])
      : size{FastDivisor(at_least_1(sizes[0])), FastDivisor(at_least_1(sizes[1])),
             FastDivisor(at_least_1(sizes[2]))} {}

  // Where index is along the axes; returns how many of the whole are in front of it.
  SPARK_HOST_DEVICE int32_t split(int32_t index, int32_t (&at)[3]) const {
    for (int i = 2; i >= 0; --i) {
      const int32_t rest = size[i](index);
      at[i] = index - rest * size[i].divisor();
      index = rest;
    }
    return index;
  }

 private:
  static int64_t at_least_1(int64_t size) { return size > 1 ? size : 1; }
};

}  // namespace spark
