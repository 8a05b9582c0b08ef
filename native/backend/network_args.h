// network_args.h: what lies between the layers of a network, and its training: softmax, normalizations,
// attention, loss, optimizer step. Part of the contract in backend.h.
#pragma once

#include <cstdint>

#include "backend/weight.h"
#include "core/float_formats.h"

namespace spark {

// Rows of a matrix: y = softmax(x), or log(softmax(x)). cols >= 1.
struct SoftmaxArgs {
  int64_t rows, cols;
  bool log;
  const float* x;  // [rows, cols]
  float* y;        // [rows, cols]; may be x
};

// dx = y ∘ (dy − Σ_c dy ∘ y), or with log dy − e^y · Σ_c dy.
struct SoftmaxBackwardArgs {
  int64_t rows, cols;
  bool log;
  const float* y;   // [rows, cols], from the forward pass
  const float* dy;  // [rows, cols]
  float* dx;        // [rows, cols]; may be dy
};

// y[r, i] = (x[r, i] − mean[r]) · inv_std[r] · scale[j] + bias[j]    j = ⌊((r mod groups) · cols + i) /
// inner⌋ mean[r] = Σ_i x[r, i] / cols, or 0 unless `centered`; inv_std[r] = 1 / √(Σ_i (x[r, i] − mean[r])² /
// cols + eps). Layer and RMS normalization: groups and inner 1. Group normalization of [N, C, P]: rows N·G,
// cols C/G·P, inner P; instance normalization has a group for each channel. cols >= 1, a multiple of inner.
struct NormArgs {
  int64_t rows, cols, groups, inner;
  bool centered;
  float eps;
  const float* x;      // [rows, cols]
  const float* scale;  // [groups · cols / inner]; null: 1
  const float* bias;   // as scale; null: 0
  void* y;             // [rows, cols] of y_dtype; may be x where that is f32. Null with y_rounded: not wanted
  float* mean;         // [rows], for the backward pass; null: not wanted
  float* inv_std;      // [rows], for the backward pass; null: not wanted
  FloatType y_dtype = FloatType::kF32;  // 16 bits: CUDA only
  // y of f32 as rows rounded to NVFP4 for products (kRoundedUnit of linear_args.h), [rows, cols], of layer
  // and RMS normalization; null: not wanted.
  uint16_t* y_rounded = nullptr;
  float y_scale = 0;           // tensor scale of y_rounded, as x_scale of LinearArgs
  uint16_t* y_half = nullptr;  // y of f32 in half_dtype as well; null: not wanted. CUDA only
  FloatType half_dtype = FloatType::kBF16;
};

// With h = (x − mean) · inv_std and g = dy · scale[j]:
//   dx = inv_std · (g − Σ_i g / cols − h · Σ_i g·h / cols), the first sum only when centered
//   dscale[j] = Σ dy · h    dbias[j] = Σ dy    over all elements of j
struct NormBackwardArgs {
  int64_t rows, cols, groups, inner;
  bool centered;
  const float* x;        // [rows, cols]
  const float* scale;    // [groups · cols / inner]; null: 1
  const float* mean;     // [rows]; null unless centered
  const float* inv_std;  // [rows]
  const float* dy;       // [rows, cols]
  float* dx;             // [rows, cols]; null: not wanted
  float* dscale;         // as scale; null: not wanted
  float* dbias;          // as scale; null: not wanted
};

// mean[c] and variance[c] (Σ (x − mean)² / count) over n and p. batch · positions >= 1.
struct BatchStatisticsArgs {
  int64_t batch, channels, positions;  // N, C, P
  const float* x;                      // [N, C, P]
  float* mean;                         // [C]
  float* variance;                     // [C]
};

// y[n, c, p] = (x[n, c, p] − mean[c]) / √(variance[c] + eps) · scale[c] + bias[c]
struct BatchNormArgs {
  int64_t batch, channels, positions;
  float eps;
  const float* x;         // [N, C, P]
  const float* mean;      // [C]
  const float* variance;  // [C]
  const float* scale;     // [C]; null: 1
  const float* bias;      // [C]; null: 0
  float* y;               // [N, C, P]; may be x
};

// With h = (x − mean) / √(variance + eps): dscale = Σ dy · h, dbias = Σ dy over n and p, and
// dx = scale / √(variance + eps) · dy, in `training`, where mean and variance are those of x,
// · (dy − dbias / (N·P) − h · dscale / (N·P)).
struct BatchNormBackwardArgs {
  int64_t batch, channels, positions;
  bool training;
  float eps;
  const float* x;         // [N, C, P]
  const float* mean;      // [C]
  const float* variance;  // [C]
  const float* scale;     // [C]; null: 1
  const float* dy;        // [N, C, P]
  float* dx;              // [N, C, P]; null: not wanted
  float* dscale;          // [C]; null: not wanted
  float* dbias;           // [C]; null: not wanted
};

// Sizes of attention. Head h of the queries meets head ⌊h · kv_heads / heads⌋ of keys and values.
struct AttentionShape {
  int64_t batch, heads, kv_heads;  // B, H and H_kv, of which H is a multiple
  int64_t queries, keys;           // T and S
  int64_t depth, value_depth;      // D and E
};

// Rows of all heads: element i of a row of a head is data[b · batch + h · head + row · step + i].
struct HeadStrides {
  int64_t batch, head, step;
};

// With w[t, s] = scale · q[t, :]·k[s, :], softcap · tanh(w / softcap) where softcap is not 0, + mask[t, s]:
// y[t, :] = Σ_s softmax_s(w)[t, s] · v[s, :] over the visible s, those with s <= t + causal_offset when
// causal and a mask above −Inf. y is 0 where none is visible. w is never stored as a whole. In
// bf16 and f16 a GPU rounds q, k, v and the weights of v; other backends compute in f32.
struct AttentionArgs {
  AttentionShape shape;
  float scale, softcap;
  bool causal;
  int64_t causal_offset;
  const float *q, *k, *v;  // rows of D, D and E
  const float* mask;       // rows of S; null: none. Strides may be 0.
  HeadStrides q_strides, k_strides, v_strides, mask_strides;
  void* y;  // rows of E of y_dtype, in 16 bits without gaps
  HeadStrides y_strides;
  float* log_sum;   // [B, H, T]: log Σ_s e^w, −Inf where nothing is visible; null: not wanted
  Compute compute;  // f32, bf16 or f16
  FloatType y_dtype = FloatType::kF32;  // 16 bits: CUDA only
};

// dq, dk and dv lie as q, k and v, and dy as y. A row of dk and dv is the sum over the heads that meet it. In
// bf16 and f16 a GPU rounds q, k, v, dy, the softmax and the gradients of w; other backends compute in f32.
struct AttentionBackwardArgs {
  AttentionArgs forward;  // its y and log_sum are read
  const float* dy;
  float* dq;  // null: not wanted
  float* dk;  // null: not wanted
  float* dv;  // null: not wanted
};

// Rotary embedding: y = x but for pairs of the first `rotary` elements of each head, which are rotated by the
// angles of their row: with a = x[p], b = x[q], y[p] = a · cos[i] − b · sin[i] and y[q] = a · sin[i] + b ·
// cos[i], each product and each sum rounded, for i < rotary / 2 and (p, q) = (i, rotary / 2 + i), or
// (2i, 2i + 1) if interleaved.
struct RotaryArgs {
  int64_t batch, tokens, heads, depth;
  int64_t rotary;  // even, at most depth
  bool interleaved;
  bool heads_first;        // x and y are [batch, heads, tokens, depth]
  const float* x;          // [batch, tokens, heads, depth]
  const float *cos, *sin;  // [batch, tokens, rotary / 2]
  float* y;                // as x; not x
};

// loss[0] = mean over t of −log softmax(logits[t, :])[labels[t]]; dlogits = (softmax − onehot) / T. T >= 1.
// labels lie in [0, classes); others are ERR_ARGUMENT or, on CUDA, make the loss NaN.
struct SoftmaxCrossEntropyArgs {
  int64_t tokens, classes;
  const float* logits;    // [T, C]
  const int32_t* labels;  // [T]
  float* loss;            // [1]
  float* dlogits;         // [T, C]; null: not wanted
};

// A number that is fixed when an operation is prepared, or read anew at each run of a plan (learning rate).
struct Scalar {
  double value;
  const double* at;  // [1]; null: value

  SPARK_HOST_DEVICE double get() const { return at ? *at : value; }
};

constexpr int64_t kMaxAdamwTensors = 64;  // they are a kernel parameter, of which there are 4 KiB

struct AdamwTensor {
  int64_t count;
  const float* grad;
  float* param;
  float* m;  // first moment
  float* v;  // second moment
};

// One AdamW step (Loshchilov and Hutter 2019, algorithm 2) of several tensors, in place; `step` counts
// from 1. No tensor overlaps another.
struct AdamwArgs {
  Scalar step, lr;
  double beta1, beta2, eps, weight_decay;  // 1 − beta is formed in f64
  int64_t tensor_count;
  AdamwTensor tensors[kMaxAdamwTensors];
};

}  // namespace spark
