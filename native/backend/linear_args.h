// linear_args.h: linear layers and products of matrices. Part of the contract in backend.h.
#pragma once

#include <cstdint>

#include "backend/weight.h"

namespace spark {

// gelu: x/2 · (1 + erf(x/√2)); gelu_tanh: x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))); silu: x / (1 + e^-x)
enum class Activation : uint8_t {
  kNone,
  kRelu,
  kGelu,
  kGeluTanh,
  kSilu,
  kSigmoid,
  kTanh,
  kRelu6,
  kHardSwish
};

// Lines along K in bf16 or f16 are as long as the next multiple of this, filled with zeros.
constexpr int64_t kDepthUnit = 32;

// Rows that are rounded to NVFP4 once for several products with compute nvfp4 are a multiple of this long.
// They take as many elements of 16 bits as in f32, on a multiple of 16 bytes, and are for the device that
// wrote them: it decides, by their sizes, between codes with their scales and the same numbers in bf16. CUDA
// only.
constexpr int64_t kRoundedUnit = 64;

// y[t, o] = activation(gate[t, o] · row_scale[o] · Σ_i x[t, i] W[o, i] + bias[o]) + residual[t, o]
// x may be in the numbers that bf16 or f16 products round it to, on a multiple of 16 bytes and with I a
// multiple of kDepthUnit, and y in those of the products that read it. 16 bits: CUDA only.
struct LinearArgs {
  Weight weight;  // [O, I]
  int64_t tokens;
  const void* x;           // [T, I] of x_dtype
  const float* row_scale;  // [O]; null: 1
  const float* bias;       // [O]; null: no bias
  const float* residual;   // [T, O]; null: none. May be y of f32.
  const float* gate;       // [T, O]; null: 1. May be y of f32.
  Activation activation;
  Compute compute;
  void* y;  // [T, O] of y_dtype
  FloatType x_dtype = FloatType::kF32, y_dtype = FloatType::kF32;
  bool takes_rounded = false;     // compute nvfp4: x is rounded rows, in the place of x_dtype
  uint16_t* x_rounded = nullptr;  // compute nvfp4, output: x as rounded rows, [T, I]; null: not wanted
  // compute nvfp4: the tensor scale with which x of f32 is rounded, a power of two: magnitudes over 2688
  // times it are clipped. 0: each row has one of its own (nvfp4_row_scale).
  float x_scale = 0;
  // compute nvfp4, output: y as rounded rows with the tensor scale y_scale, which is not 0, [T, O]; null: not
  // wanted. Beside it y is of f32, or null: not wanted.
  uint16_t* y_rounded = nullptr;
  float y_scale = 0;
};

// A linear layer of which each token chooses some experts. With e = choice[n, j]
//   y[n, j, o] = Σ_i x[n, i] W[e, o, i] + bias[e, o], x[n, j, i] in the place of x[n, i] when per_choice.
// A sum is that of a linear layer with the weight of its expert, whoever else chooses that. The CPU refuses a
// choice out of range; a GPU fills its row of y with NaN.
struct ExpertLinearArgs {
  Weight weight;  // [E · O, I], one expert behind the other
  int64_t experts, tokens, choices;
  bool per_choice;
  const float* x;         // [N, I], per_choice: [N, k, I]
  const int64_t* choice;  // [N, k]
  const float* bias;      // [E, O]; null: no bias
  float* y;               // [N, k, O]
};

// y[i, :] = W[indices[i], :], decoded. An index is at least −rows and less than rows; it counts from the end
// where it is negative.
struct GatherRowsArgs {
  Weight weight;  // [R, C]
  int64_t count;
  const int64_t* indices;  // [count]
  float* y;                // [count, C]
};

// A batch of matrices in two dimensions; strides count elements, 0 repeats a matrix. One of row and col is 1,
// unless the matrix has but one row or column.
struct Matrices {
  const float* data;
  int64_t outer, inner, row, col;
};

// y[i, j, m, n] = alpha · Σ_k a[i, j, m, k] · b[i, j, k, n] for i < outer, j < inner. In bf16 and f16 a GPU
// rounds a and b; other backends compute in f32.
struct MatmulArgs {
  int64_t outer, inner, m, n, k;
  float alpha;
  Matrices a, b;
  float* y;                         // rows of n contiguous elements
  int64_t y_outer, y_inner, y_row;  // strides of y; its rows do not overlap
  Compute compute;                  // f32, bf16 or f16
};

// dx = dy · W, dweight = dyᵀ · x, dbias = Σ_t dy[t, :]
struct LinearBackwardArgs {
  Weight weight;  // [O, I]
  int64_t tokens;
  const float* x;   // [T, I]
  const float* dy;  // [T, O]
  float* dx;        // [T, I]; null: not wanted
  float* dweight;   // [O, I]; null: not wanted
  float* dbias;     // [O]; null: not wanted
  Compute compute;  // of dx and dweight
};

}  // namespace spark
