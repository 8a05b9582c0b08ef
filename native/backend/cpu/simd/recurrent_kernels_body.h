// recurrent_kernels_body.h: the loops of recurrent_kernels.h, compiled once per instruction set (isa_body.h).
#pragma once

#include "backend/cpu/simd/recurrent_kernels.h"
#include "backend/recurrent_units.h"

namespace spark::cpu {
namespace {
namespace recurrent {

// Floats of a vector, and vectors of a block of sums that stays in registers: of one row, of four.
#if defined(__AVX512F__)
constexpr int kWidth = 16, kVecs = 2, kVecsOfFour = 4;
#elif defined(__AVX2__)
constexpr int kWidth = 8, kVecs = 8, kVecsOfFour = 2;
#elif defined(__aarch64__)
constexpr int kWidth = 4, kVecs = 16, kVecsOfFour = 4;
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

// `count` elements from x on, 0 in the place of others.
inline Vec take(const float* x, int64_t count) {
  if (count >= kWidth) return load_vec(x);
  float some[kWidth] = {};
  for (int64_t i = 0; i < count; ++i) some[i] = x[i];
  return load_vec(some);
}

inline void give(float* to, Vec vec, int64_t count) {
  if (count >= kWidth) return store_vec(to, vec);
  for (int64_t i = 0; i < count; ++i) to[i] = vec[i];
}

// --- product ---

constexpr int kPanelVecs = kPanelRows / kWidth;

// M rows from `row` on by N vectors of gates from vector v on.
template <int M, int N>
inline void multiply_block(const StateProduct& at, int64_t row, int64_t v) {
  const float* state = at.state + row * at.depth;
  const float* panel[N];
  Vec total[M][N];
  for (int n = 0; n < N; ++n) {
    panel[n] = at.panels + (v + n) / kPanelVecs * at.depth * kPanelRows + (v + n) % kPanelVecs * kWidth;
    const int64_t gate = (v + n) * kWidth;
    const Vec start = at.bias ? take(at.bias + gate, at.end - gate) : Vec{};
    for (int m = 0; m < M; ++m) total[m][n] = start;
  }
  for (int64_t k = 0; k < at.depth; ++k) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      const Vec right = load_vec(panel[n] + k * kPanelRows);
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) total[m][n] += state[m * at.depth + k] * right;
    }
  }
  for (int m = 0; m < M; ++m) {
    float* sums = at.sums + (row + m) * at.stride;
    for (int n = 0; n < N; ++n) {
      const int64_t gate = (v + n) * kWidth, first = gate < at.begin ? at.begin - gate : 0;
      if (first == 0) {
        give(sums + gate, total[m][n], at.end - gate);
        continue;
      }
      for (int64_t i = first; i < kWidth && gate + i < at.end; ++i) sums[gate + i] = total[m][n][i];
    }
  }
}

// The vectors from v on in blocks of N, then of fewer.
template <int M, int N>
void multiply_rows(const StateProduct& at, int64_t row, int64_t v) {
  const int64_t vecs = (at.end + kWidth - 1) / kWidth;
  for (; v + N <= vecs; v += N) multiply_block<M, N>(at, row, v);
  if constexpr (N > 1) {
    if (v < vecs) multiply_rows<M, N / 2>(at, row, v);
  }
}

void product(const StateProduct& at) {
  const int64_t first = at.begin / kWidth;
  int64_t row = 0;
  for (; row + 4 <= at.rows; row += 4) multiply_rows<4, kVecsOfFour>(at, row, first);
  for (; row < at.rows; ++row) multiply_rows<1, kVecs>(at, row, first);
}

// --- units ---

// The functions that a layer has when its node names none, which are compiled for themselves.
constexpr UnaryFn kUsual[] = {UnaryFn::kSigmoid, UnaryFn::kTanh, UnaryFn::kTanh};

template <int kFirst>
struct UsualFunctions {
  __attribute__((always_inline)) Vec operator()(int i, Vec x) const {
    return f32::unary(kUsual[kFirst + i], x, 0, 0);
  }
};

__attribute__((noinline)) Vec function_value(const Function& function, Vec x) {
  return f32::unary(function.fn, x, static_cast<float>(function.alpha), static_cast<float>(function.beta));
}

struct AnyFunctions {
  const Function* functions;

  Vec operator()(int i, Vec x) const { return function_value(functions[i], x); }
};

// Calls body(functions, j, count) for the units [j, j + count), kWidth or fewer of them. Usual functions are
// `count` of kUsual from kFirst on.
template <int kFirst, int kCount, typename Body>
inline void for_units(const RecurrentUnits& at, const Body& body) {
  const auto loop = [&](const auto& functions) {
    for (int64_t j = 0; j < at.hidden; j += kWidth) {
      body(functions, j, at.hidden - j < kWidth ? at.hidden - j : kWidth);
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
inline Vec gate_of(const RecurrentUnits& at, int n, int64_t j, int64_t count) {
  const int64_t offset = n * at.hidden + j;
  return take(at.inputs + offset, count) + take(at.gates + offset, count);
}

void rnn(const RecurrentUnits& at) {
  for_units<1, 1>(at, [&](const auto& functions, int64_t j, int64_t count) {
    give(at.h + j, functions(0, clipped(gate_of(at, 0, j, count), at.clip)), count);
  });
}

void gru_gates(const RecurrentUnits& at, float* reset) {
  float *z = at.gates, *r = z + at.hidden;
  for_units<0, 1>(at, [&](const auto& functions, int64_t j, int64_t count) {
    const Vec open = functions(0, clipped(gate_of(at, 1, j, count), at.clip));
    give(z + j, functions(0, clipped(gate_of(at, 0, j, count), at.clip)), count);
    give(r + j, open, count);
    give(reset + j, open * take(at.h + j, count), count);
  });
}

void gru(const RecurrentUnits& at, bool linear_before_reset) {
  const float *z = at.gates, *r = z + at.hidden, *sums = r + at.hidden;
  for_units<0, 2>(at, [&](const auto& functions, int64_t j, int64_t count) {
    const Vec state = take(sums + j, count),
              weighed = linear_before_reset ? take(r + j, count) * state : state;
    const Vec sum = take(at.inputs + 2 * at.hidden + j, count) + weighed;
    const Vec keep = take(z + j, count), h = take(at.h + j, count);
    give(at.h + j, (1 - keep) * functions(1, clipped(sum, at.clip)) + keep * h, count);
  });
}

void lstm(const RecurrentUnits& at, bool couple_gates, const float* peepholes, float* c) {
  for_units<0, 3>(at, [&](const auto& functions, int64_t j, int64_t count) {
    Vec gate[4], peephole[3], state = take(c + j, count);
    for (int n = 0; n < 4; ++n) gate[n] = gate_of(at, n, j, count);
    if (peepholes) {
      for (int n = 0; n < 3; ++n) peephole[n] = take(peepholes + n * at.hidden + j, count);
    }
    const Vec h = lstm_unit(functions, at.clip, couple_gates, gate, peepholes ? peephole : nullptr, state);
    give(c + j, state, count);
    give(at.h + j, h, count);
  });
}

constexpr RecurrentKernels kKernels = {
    .product = product,
    .rnn = rnn,
    .gru_gates = gru_gates,
    .gru = gru,
    .lstm = lstm,
};

}  // namespace recurrent
}  // namespace
}  // namespace spark::cpu
