// row_kernels_body.h: the loops of row_kernels.h, compiled once per instruction set (isa_body.h). Sums have
// 32 lanes, in as many registers as that takes, so that every instruction set adds in the same order.
#pragma once

#include "backend/cpu/simd/row_kernels.h"
#include "backend/cpu/simd/vector_math.h"

namespace spark::cpu {
namespace {
namespace rows {

constexpr int64_t kLanes = vector_math::kLanes;
using vector_math::Floats;
using vector_math::load;
using vector_math::load_some;
using vector_math::splat;
using vector_math::store;

constexpr int64_t kSums = 32, kSumVectors = kSums / kLanes;

// Calls body(i, count of elements, which vector of the sums) for one vector after the other.
template <typename Body>
inline void for_each_vector(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
#pragma GCC unroll 8
    for (int which = 0; which < kSumVectors; ++which) body(i + which * kLanes, kLanes, which);
  }
#pragma GCC unroll 8
  for (int which = 0; which < kSumVectors; ++which, i += kLanes) {
    if (i < count) body(i, i + kLanes <= count ? kLanes : count - i, which);
  }
}

// Elements [i, i + some) of x; those behind are `fill`.
inline Floats take(const float* x, int64_t i, int64_t some, float fill = 0) {
  return some == kLanes ? load(x + i) : load_some(x + i, some, fill);
}

inline Floats take_or(const float* x, float other, int64_t i, int64_t some) {
  return x ? take(x, i, some) : splat(other);
}

using Sums = Floats[kSumVectors];

// The first half of the lanes and the second, then lane by lane.
inline float add_lanes(const Sums& total) {
  float sum = 0;
  for (int64_t which = 0; which < kSumVectors / 2; ++which) {
    const Floats both = total[which] + total[which + kSumVectors / 2];
    for (int64_t i = 0; i < kLanes; ++i) sum += both[i];
  }
  return sum;
}

inline float max_lane(const Sums& best) {
  Floats all = best[0];
  for (int64_t which = 1; which < kSumVectors; ++which) all = best[which] > all ? best[which] : all;
  float result = all[0];
  for (int64_t i = 1; i < kLanes; ++i) result = all[i] > result ? all[i] : result;
  return result;
}

inline void fill(Sums& lanes, float value) {
  for (Floats& vector : lanes) vector = splat(value);
}

float max(const float* x, int64_t count) {
  const float lowest = -__builtin_inff();
  Sums best;
  fill(best, lowest);
  for_each_vector(count, [&](int64_t i, int64_t some, int which) {
    const Floats values = take(x, i, some, lowest);
    best[which] = values > best[which] ? values : best[which];
  });
  return max_lane(best);
}

float scores(float* x, int64_t count, float factor, const float* offset) {
  const float lowest = -__builtin_inff();
  Sums best;
  fill(best, lowest);
  for_each_vector(count, [&](int64_t i, int64_t some, int which) {
    Floats values = take(x, i, some, lowest) * factor;
    if (offset) values += take(offset, i, some);
    store(x + i, values, some);
    best[which] = values > best[which] ? values : best[which];
  });
  return max_lane(best);
}

float exponentials(const float* x, int64_t count, float shift, float* y) {
  Sums total = {};
  for_each_vector(count, [&](int64_t i, int64_t some, int which) {
    const Floats values = f32::exp(take(x, i, some, -__builtin_inff()) - shift);  // e^−∞ is 0
    if (y) store(y + i, values, some);
    total[which] += values;
  });
  return add_lanes(total);
}

float sum(const float* x, int64_t count) {
  Sums total = {};
  for_each_vector(count, [&](int64_t i, int64_t some, int which) { total[which] += take(x, i, some); });
  return add_lanes(total);
}

float square_sum(const float* x, int64_t count, float mean) {
  Sums total = {};
  for_each_vector(count, [&](int64_t i, int64_t some, int which) {
    const Floats difference = take(x, i, some, mean) - splat(mean);
    total[which] += difference * difference;
  });
  return add_lanes(total);
}

float dot(const float* x, const float* y, int64_t count) {
  Sums total = {};
  for_each_vector(count, [&](int64_t i, int64_t some, int which) {
    total[which] += take(x, i, some) * take(y, i, some);
  });
  return add_lanes(total);
}

constexpr int64_t kDoubleSums = 16;

double double_sum(const float* x, int64_t count) {
  constexpr int64_t kDoubles = vec::kWidth / 2, kParts = kDoubleSums / kDoubles;
  using Part = double __attribute__((vector_size(kDoubles * 8)));
  using Singles = float __attribute__((vector_size(kDoubles * 4)));
  Part total[kParts] = {};
  int64_t i = 0;
  for (; i + kDoubleSums <= count; i += kDoubleSums) {
#pragma GCC unroll 8
    for (int64_t part = 0; part < kParts; ++part) {
      Singles values;
      __builtin_memcpy(&values, x + i + part * kDoubles, sizeof(values));
      total[part] += __builtin_convertvector(values, Part);
    }
  }
  double lanes[kDoubleSums];
  __builtin_memcpy(lanes, total, sizeof(lanes));
#pragma GCC unroll 4
  for (int64_t half = kDoubleSums / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  double sum = lanes[0];
  for (; i < count; ++i) sum += x[i];
  return sum;
}

// sums[c] = Σ x[i · stride + c] over i < count for as many columns side by side as a vector has lanes, in the
// order of double_sum.
template <typename Singles, typename Doubles>
inline void sum_columns(const float* x, int64_t stride, int64_t count, double* sums) {
  const auto row = [&](int64_t i) {
    Singles values;
    __builtin_memcpy(&values, x + i * stride, sizeof(values));
    return __builtin_convertvector(values, Doubles);
  };
  Doubles lanes[kDoubleSums] = {};
  int64_t i = 0;
  for (; i + kDoubleSums <= count; i += kDoubleSums) {
#pragma GCC unroll 16
    for (int64_t lane = 0; lane < kDoubleSums; ++lane) lanes[lane] += row(i + lane);
  }
#pragma GCC unroll 4
  for (int64_t half = kDoubleSums / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  Doubles sum = lanes[0];
  for (; i < count; ++i) sum += row(i);
  __builtin_memcpy(sums, &sum, sizeof(sum));
}

void double_sums(const float* x, int64_t stride, int64_t count, int64_t columns, double* sums) {
  constexpr int64_t kDoubles = vec::kWidth / 2;
  using Singles = float __attribute__((vector_size(kDoubles * 4)));
  using Doubles = double __attribute__((vector_size(kDoubles * 8)));
  using Single = float __attribute__((vector_size(4)));
  using Double = double __attribute__((vector_size(8)));
  int64_t c = 0;
  for (; c + kDoubles <= columns; c += kDoubles)
    sum_columns<Singles, Doubles>(x + c, stride, count, sums + c);
  for (; c < columns; ++c) sum_columns<Single, Double>(x + c, stride, count, sums + c);
}

void max_columns(const float* x, int64_t stride, int64_t count, int64_t columns, float* y) {
  for (int64_t c = 0; c < columns; c += vec::kWidth) {
    const int64_t some = columns - c;
    vec::Vec max = vec::load_some(y + c, some);
    for (int64_t i = 0; i < count; ++i) max = vec::larger(max, vec::load_some(x + i * stride + c, some));
    vec::store_some(y + c, max, some);
  }
}

void affine(const float* x, int64_t count, float factor, float shift, float* y) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(y + i, load(x + i) * factor + shift, kLanes);
  for (; i < count; ++i) y[i] = x[i] * factor + shift;
}

void normalize(const float* x, int64_t count, float mean, float factor, const float* scale, const float* bias,
               float* y) {
  for_each_vector(count, [&](int64_t i, int64_t some, int) {
    Floats values = (take(x, i, some) - mean) * factor;
    if (scale) values *= take(scale, i, some);
    if (bias) values += take(bias, i, some);
    store(y + i, values, some);
  });
}

void gradient_sums(const float* dy, const float* scale, const float* x, float mean, int64_t count,
                   float sums[2]) {
  Sums plain = {}, weighted = {};
  for_each_vector(count, [&](int64_t i, int64_t some, int which) {
    const Floats gradient = take(dy, i, some) * take_or(scale, 1, i, some);
    plain[which] += gradient;
    weighted[which] += gradient * (take(x, i, some) - mean);
  });
  sums[0] = add_lanes(plain);
  sums[1] = add_lanes(weighted);
}

void normalize_backward(const float* dy, const float* scale, const float* x, float mean, int64_t count,
                        float factor, float first, float second, float* dx) {
  for_each_vector(count, [&](int64_t i, int64_t some, int) {
    const Floats gradient = take(dy, i, some) * take_or(scale, 1, i, some);
    store(dx + i, (gradient - first - (take(x, i, some) - mean) * second) * factor, some);
  });
}

void softmax_backward(const float* y, const float* dy, int64_t count, float dot, bool log, float* dx) {
  for_each_vector(count, [&](int64_t i, int64_t some, int) {
    const Floats value = take(y, i, some), gradient = take(dy, i, some);
    store(dx + i, log ? gradient - f32::exp(value) * dot : value * (gradient - dot), some);
  });
}

constexpr RowKernels kKernels = {
    .max = max,
    .scores = scores,
    .exponentials = exponentials,
    .sum = sum,
    .square_sum = square_sum,
    .dot = dot,
    .double_sum = double_sum,
    .double_sums = double_sums,
    .max_columns = max_columns,
    .affine = affine,
    .normalize = normalize,
    .gradient_sums = gradient_sums,
    .normalize_backward = normalize_backward,
    .softmax_backward = softmax_backward,
};

}  // namespace rows
}  // namespace
}  // namespace spark::cpu
