// recurrent_kernels.h: the inner loops of recurrent layers. Every instruction set gives the same bits.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace spark::cpu {

// sums[i · stride + j] = bias[j] + Σ_k state[i · depth + k] · R[j, k] for i < rows and begin <= j < end: one
// chain with rising k. R lies in panels (backend/weight.h).
struct StateProduct {
  int64_t rows, depth;
  int64_t begin, end, stride;
  const float* state;
  const float* panels;
  const float* bias;  // null: 0
  float* sums;
};

// The units of a sample in a step.
struct RecurrentUnits {
  int64_t hidden;
  const float* inputs;        // x · Wᵀ + bias, [gates · hidden]
  float* gates;               // h · Rᵀ + bias, [gates · hidden]
  const Function* functions;  // function_count(cell)
  float clip;
  float* h;  // [hidden]
};

struct RecurrentKernels {
  void (*product)(const StateProduct& product);
  // h becomes that of the next step.
  void (*rnn)(const RecurrentUnits& units);
  // The gates z and r become what functions make of them, and reset = r ∘ h.
  void (*gru_gates)(const RecurrentUnits& units, float* reset);
  // h from z, r and the sums of the gate h, which r weighs where linear_before_reset.
  void (*gru)(const RecurrentUnits& units, bool linear_before_reset);
  // peepholes: [3 · hidden]; null: 0. c, [hidden], becomes that of the next step.
  void (*lstm)(const RecurrentUnits& units, bool couple_gates, const float* peepholes, float* c);
};

}  // namespace spark::cpu
