// recurrent_loops_body.h: the loops of recurrent_loops.h. Included by one translation unit per instruction
// set and by nothing else, as precision_loops_body.h is.
#pragma once

#include "backend/cpu/recurrent_loops.h"
#include "backend/cpu/vector_math.h"
#include "backend/recurrent_units.h"

namespace spark::cpu {
namespace {

// --- product: blocks of sums that stay in registers ---

#if defined(__AVX512F__)
constexpr int kWidth = 16, kVecs = 16, kVecsOfFour = 4;
#elif defined(__AVX2__)
constexpr int kWidth = 8, kVecs = 8, kVecsOfFour = 2;
#else
constexpr int kWidth = 4, kVecs = 8, kVecsOfFour = 2;
#endif
using Vec = float __attribute__((vector_size(kWidth * 4)));

inline Vec load_vec(const float* from) {
  Vec vec;
  __builtin_memcpy(&vec, from, sizeof(vec));
  return vec;
}

inline void store_vec(float* to, Vec vec) { __builtin_memcpy(to, &vec, sizeof(vec)); }

// M rows from `row` on by N vectors from column j on.
template <int M, int N>
inline void multiply_block(const StateProduct& at, int64_t row, int64_t j) {
  const float *state = at.state + row * at.depth, *weight = at.weight + j;
  Vec total[M][N];
  for (int n = 0; n < N; ++n) {
    const Vec start = at.bias ? load_vec(at.bias + j + n * kWidth) : Vec{};
    for (int m = 0; m < M; ++m) total[m][n] = start;
  }
  for (int64_t k = 0; k < at.depth; ++k, weight += at.stride) {
    Vec right[N];
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) right[n] = load_vec(weight + n * kWidth);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) total[m][n] += state[m * at.depth + k] * right[n];
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) store_vec(at.sums + (row + m) * at.stride + j + n * kWidth, total[m][n]);
  }
}

// The columns from j on in blocks of N vectors, then of fewer; the last vector ends where the columns end.
template <int M, int N>
void multiply_columns(const StateProduct& at, int64_t row, int64_t j) {
  for (; at.end - j >= N * kWidth; j += N * kWidth) multiply_block<M, N>(at, row, j);
  if constexpr (N > 1) {
    if (j < at.end) multiply_columns<M, N / 2>(at, row, j);
  } else if (j < at.end) {
    multiply_block<M, 1>(at, row, at.end - kWidth);
  }
}

void multiply_narrow(const StateProduct& at) {
  for (int64_t i = 0; i < at.rows; ++i) {
    for (int64_t j = at.begin; j < at.end; ++j) {
      float sum = at.bias ? at.bias[j] : 0;
      for (int64_t k = 0; k < at.depth; ++k) {
        sum += at.state[i * at.depth + k] * at.weight[k * at.stride + j];
      }
      at.sums[i * at.stride + j] = sum;
    }
  }
}

void product(const StateProduct& at) {
  if (at.end - at.begin < kWidth) return multiply_narrow(at);
  int64_t row = 0;
  for (; row + 4 <= at.rows; row += 4) multiply_columns<4, kVecsOfFour>(at, row, at.begin);
  for (; row < at.rows; ++row) multiply_columns<1, kVecs>(at, row, at.begin);
}

// --- units ---

using vector_math::Floats;
using vector_math::kLanes;
using vector_math::store;

// `count` elements from x on, 0 in the place of others.
inline Floats take(const float* x, int64_t count) {
  return count < kLanes ? vector_math::load_some(x, count, 0) : vector_math::load(x);
}

// The functions that a layer has when its node names none, which are compiled for themselves.
constexpr UnaryFn kUsual[] = {UnaryFn::kSigmoid, UnaryFn::kTanh, UnaryFn::kTanh};

template <int kFirst>
struct UsualFunctions {
  __attribute__((always_inline)) Floats operator()(int i, Floats x) const {
    return f32::unary(kUsual[kFirst + i], x, 0, 0);
  }
};

__attribute__((noinline)) Floats function_value(const Function& function, Floats x) {
  return f32::unary(function.fn, x, static_cast<float>(function.alpha), static_cast<float>(function.beta));
}

struct AnyFunctions {
  const Function* functions;

  Floats operator()(int i, Floats x) const { return function_value(functions[i], x); }
};

// Calls body(functions, j, count) for the units [j, j + count), kLanes or fewer of them. Usual functions are
// `count` of kUsual from kFirst on.
template <int kFirst, int kCount, typename Body>
inline void for_units(const RecurrentUnits& at, const Body& body) {
  const auto loop = [&](const auto& functions) {
    for (int64_t j = 0; j < at.hidden; j += kLanes) {
      body(functions, j, at.hidden - j < kLanes ? at.hidden - j : kLanes);
    }
  };
  bool usual = true;
  for (int i = 0; i < kCount; ++i) usual = usual && at.functions[i].fn == kUsual[kFirst + i];
  if (usual) {
    loop(UsualFunctions<kFirst>{});
  } else {
    loop(AnyFunctions{at.functions});
  }
}

// What a function takes of unit j of gate n.
inline Floats gate_of(const RecurrentUnits& at, int n, int64_t j, int64_t count) {
  const int64_t place = n * at.hidden + j;
  return take(at.inputs + place, count) + take(at.gates + place, count);
}

void rnn(const RecurrentUnits& at) {
  for_units<1, 1>(at, [&](const auto& functions, int64_t j, int64_t count) {
    store(at.h + j, functions(0, clipped(gate_of(at, 0, j, count), at.clip)), count);
  });
}

void gru_gates(const RecurrentUnits& at, float* reset) {
  float *z = at.gates, *r = z + at.hidden;
  for_units<0, 1>(at, [&](const auto& functions, int64_t j, int64_t count) {
    const Floats open = functions(0, clipped(gate_of(at, 1, j, count), at.clip));
    store(z + j, functions(0, clipped(gate_of(at, 0, j, count), at.clip)), count);
    store(r + j, open, count);
    store(reset + j, open * take(at.h + j, count), count);
  });
}

void gru(const RecurrentUnits& at, bool linear_before_reset) {
  const float *z = at.gates, *r = z + at.hidden, *sums = r + at.hidden;
  for_units<0, 2>(at, [&](const auto& functions, int64_t j, int64_t count) {
    const Floats state = take(sums + j, count),
                 weighed = linear_before_reset ? take(r + j, count) * state : state;
    const Floats sum = take(at.inputs + 2 * at.hidden + j, count) + weighed;
    const Floats keep = take(z + j, count), h = take(at.h + j, count);
    store(at.h + j, (1 - keep) * functions(1, clipped(sum, at.clip)) + keep * h, count);
  });
}

void lstm(const RecurrentUnits& at, bool couple_gates, const float* peepholes, float* c) {
  for_units<0, 3>(at, [&](const auto& functions, int64_t j, int64_t count) {
    Floats gate[4], peephole[3], state = take(c + j, count);
    for (int n = 0; n < 4; ++n) gate[n] = gate_of(at, n, j, count);
    if (peepholes) {
      for (int n = 0; n < 3; ++n) peephole[n] = take(peepholes + n * at.hidden + j, count);
    }
    const Floats h = lstm_unit(functions, at.clip, couple_gates, gate, peepholes ? peephole : nullptr, state);
    store(c + j, state, count);
    store(at.h + j, h, count);
  });
}

constexpr RecurrentLoops kLoops = {product, rnn, gru_gates, gru, lstm};

}  // namespace
}  // namespace spark::cpu
