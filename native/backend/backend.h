// backend.h: the table of operations that every backend fills. This file is the contract: shapes, dtypes,
// aliasing.
//
// Conventions. Matrices are row-major and contiguous. Letters: T tokens (rows of an activation), I in
// features, O out features, R rank; N batch, C channels. Pointers are addresses that the backend can read:
// host memory for the CPU, memory the device can reach for CUDA. Outputs may not alias inputs unless an entry
// says so. A nullable pointer is marked `null: …`. Sums are taken in f32; the order in which the terms of one
// output element are added depends on neither T, the row nor the number of threads, so a sample's result does
// not change with its neighbours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/quantizers.h"

namespace spark {

// A frozen weight W[rows, cols]. Element (r, c) is
//   f32, f16, bf16  data[r, c]
//   f8_e4m3, i8     decode(data[r, c]) · row_scale[r]
//   nvfp4           e2m1(data[r, c/2] nibble) · (e4m3(block_scale[r, c/16]) · tensor_scale), low nibble =
//   even column
// cols is a multiple of 16 for nvfp4. Scale products are rounded to f32 in the order written.
struct Weight {
  DType dtype;
  int64_t rows, cols;
  const void* data;
  const float* row_scale;      // [rows], f8_e4m3 and i8 only
  const uint8_t* block_scale;  // [rows, cols/16], nvfp4 only
  float tensor_scale;          // nvfp4 only
  bool packed;                 // in panels, as pack_weight writes them; CPU only
};

// Rows of a panel of a packed weight.
constexpr int64_t kPanelRows = 32;

// A weight in the layout that a processor streams: panels of kPanelRows rows, interleaved along the columns.
// In a panel, element (r, c) is at
//   f32, f16, f8_e4m3, i8  [c][r]
//   bf16                   [c/2][r][c%2], an odd number of columns being padded with 0
//   nvfp4                  byte [c/2][r], the even column in the low nibble; its block scale at [c/16][r]
// The rows of the last panel are padded with 0. row_scale and tensor_scale stay as they are.
struct PackWeightArgs {
  Weight weight;         // not packed
  void* data;            // ceil(rows/32) panels
  uint8_t* block_scale;  // nvfp4 only
};

// dst[i] = src[i] in another format, for i < count; round to nearest even, through f32, which holds every
// format exactly. f8: `saturate` sends ±Inf and everything out of range to the largest finite value;
// otherwise f8_e4m3 gives NaN and f8_e5m2 gives ±Inf. NaN stays NaN. dtypes: f32, f16, bf16, f8_e4m3,
// f8_e5m2. Recipe: docs/numerics.md.
struct CastArgs {
  DType src_dtype, dst_dtype;
  int64_t count;
  bool saturate;
  const void* src;
  void* dst;
};

// out[0] = max |src[i]|; NaN when any element is NaN; 0 when count is 0. dtypes: f32, f16, bf16.
struct AmaxArgs {
  DType dtype;
  int64_t count;
  const void* src;
  float* out;  // [1]
};

// NVFP4 by a recipe of docs/numerics.md with a given tensor scale = amax / 2688, at least 2^-126. src is
// finite.
struct Nvfp4QuantizeArgs {
  DType src_dtype;  // f32, f16, bf16
  int64_t rows, cols;
  Nvfp4Recipe recipe;
  float tensor_scale;
  float encode_scale;    // te: 2688 / amax, which it uses in place of the tensor scale
  const void* src;       // [rows, cols]
  uint8_t* packed;       // [rows, cols/2]
  uint8_t* block_scale;  // [rows, cols/16]
};

// dst[r, c] = the element of an nvfp4 Weight, f32; code 8 (-0) gives +0.
struct Nvfp4DequantizeArgs {
  int64_t rows, cols;
  float tensor_scale;
  const uint8_t* packed;
  const uint8_t* block_scale;
  float* dst;  // [rows, cols]
};

// A scale per block of block_rows x block_cols, those at the edges being smaller: scale = max|src| of the
// block / 448, or 1 where that is 0; codes = E4M3(src / scale), saturating. src is finite.
struct Fp8QuantizeArgs {
  DType src_dtype;  // f32, f16, bf16
  int64_t rows, cols;
  int64_t block_rows, block_cols;  // at least 1
  const void* src;
  uint8_t* codes;  // [rows, cols]
  float* scale;    // [ceil(rows / block_rows), ceil(cols / block_cols)]
};

// gelu: x/2 · (1 + erf(x/√2)); gelu_tanh: x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))); silu: x / (1 + e^-x)
enum class Activation : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kSilu, kSigmoid, kTanh };

// What products are formed of. bf16 rounds x (and the elements of a weight that is not bf16 itself) to bf16,
// to nearest even, where the machine has instructions for it, and is f32 elsewhere; sums are f32 always.
enum class Compute : uint8_t { kF32, kBF16 };

// y[t, o] = activation(row_scale[o] · Σ_i x[t, i] W[o, i] + bias[o]) + residual[t, o]
struct LinearArgs {
  Weight weight;  // [O, I]
  int64_t tokens;
  const float* x;          // [T, I]
  const float* row_scale;  // [O]; null: 1
  const float* bias;       // [O]; null: no bias
  const float* residual;   // [T, O]; null: none. May be y.
  Activation activation;
  Compute compute;
  float* y;  // [T, O]
};

// y[t, o] = Σ_i (x[t, i] − x_zero[t]) · (w[o, i] − w_zero[o]), exact in int32, modulo 2^32 beyond it.
struct LinearIntegerArgs {
  int64_t tokens, rows, cols;  // T, O, I
  bool x_signed, w_signed;     // i8, else u8
  const void* x;               // [T, I]
  const void* w;               // [O, I]
  const int32_t* x_zero;       // [T]; null: 0
  const int32_t* w_zero;       // [O]; null: 0
  int32_t* y;                  // [T, O]
};

// A batch of matrices in two dimensions; strides count elements, 0 repeats a matrix. One of row and col is 1,
// unless the matrix has but one row or column.
struct Matrices {
  const float* data;
  int64_t outer, inner, row, col;
};

// y[i, j, m, n] = alpha · Σ_k a[i, j, m, k] · b[i, j, k, n] for i < outer, j < inner
struct MatmulArgs {
  int64_t outer, inner, m, n, k;
  float alpha;
  Matrices a, b;
  float* y;                         // rows of n contiguous elements
  int64_t y_outer, y_inner, y_row;  // strides of y; its rows do not overlap
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

// A convolution along one to three axes (depth, height, width), written as three: those in front are of size
// 1. G groups; C and O are multiples of G. Position p = q · stride + k · dilation − pad of the image belongs
// to position q of the output and to the tap k; outside of the image everything is 0, so the sizes of the
// output are free. A negative pad crops.
struct ConvShape {
  int64_t batch, groups, channels, filters;  // N, G, C, O
  int64_t image[3], kernel[3], out[3];       // each at least 1 but for image and out
  int64_t stride[3], dilation[3];            // at least 1
  int64_t pad[3];                            // at the beginning
};

// With z[n, o, q] = Σ_{c, k} x[n, g·C/G + c, p(q, k)] W[o, c, k] + bias[o] and g = ⌊o / (O/G)⌋:
//   y = activation(z) + residual, or activation(z + residual) when it is `residual_first`.
struct ConvArgs {
  Weight weight;  // [O, C/G · taps]
  ConvShape shape;
  const float* x;         // [N, C, image]
  const float* bias;      // [O]; null: no bias
  const float* residual;  // [N, O, out]; null: none. May be y.
  bool residual_first;
  Activation activation;
  float* y;  // [N, O, out]
};

// dx[n, g·C/G + c, p] = Σ_{o of g, k, q with p(q, k) = p} dy[n, o, q] W[o, c, k]
// dweight[o, c, k] = Σ_{n, q} dy[n, o, q] x[n, g·C/G + c, p(q, k)]    dbias[o] = Σ_{n, q} dy[n, o, q]
struct ConvBackwardArgs {
  Weight weight;  // [O, C/G · taps]
  ConvShape shape;
  const float* x;   // [N, C, image]; null: no dweight
  const float* dy;  // [N, O, out]
  float* dx;        // [N, C, image]; null: not wanted
  float* dweight;   // [O, C/G · taps]; null: not wanted
  float* dbias;     // [O]; null: not wanted
};

// A transposed convolution, y = dx of conv_backward + bias[c], with x in the place of dy. `shape` is that of
// the convolution it transposes, from y to x: y has C channels and the sizes of the image, x has O and those
// of out.
struct ConvTransposeArgs {
  Weight weight;  // [O, C/G · taps]
  ConvShape shape;
  const float* x;     // [N, O, out]
  const float* bias;  // [C]; null: no bias
  float* y;           // [N, C, image]
};

// out[r] = Σ_c W[r, c]². The constant part of the DoRA norm.
struct WeightNorm2Args {
  Weight weight;
  float* out;  // [rows]
};

// The low-rank part of a DoRA layer: V = W + scale · B·A.
struct LowRank {
  int64_t rank;
  float scale;
  const float* a;  // [R, I]
  const float* b;  // [O, R]
};

// norm[o] = ‖V[o, :]‖₂ and gain[o] = magnitude[o] / max(norm[o], 1e-12), without forming V:
// norm² = ‖W‖² + 2s·rowsum((W·Aᵀ) ∘ B) + s²·rowsum((B·(A·Aᵀ)) ∘ B). A row whose norm² is below 1e-2 of the
// sum of its positive parts has cancelled and is recomputed densely, as is one whose squares are so large or
// so small (beyond 1e±30) that f32 cannot hold them.
struct DoraNormArgs {
  Weight weight;
  LowRank low_rank;
  const float* weight_norm2;  // [O] from weight_norm2
  const float* magnitude;     // [O]
  float* norm;                // [O]
  float* gain;                // [O]
};

// With d = x, or mask ∘ x when there is a dropout mask:
//   y = x·Wᵀ + bias + (gain − 1) ∘ (d·Wᵀ) + gain ∘ scale · (d·Aᵀ)·Bᵀ      which is gain ∘ (x·Vᵀ) + bias
//   without a mask
struct DoraForwardArgs {
  Weight weight;
  LowRank low_rank;
  int64_t tokens;
  const float* x;     // [T, I]
  const float* gain;  // [O]
  const float* bias;  // [O]; null: no bias
  const float* mask;  // [T, I], 0 or 1/(1-p); null: no dropout
  float* xa;          // [T, R] = d·Aᵀ, kept for the backward pass
  float* z;           // [T, O] = d·Vᵀ before the gain, kept for the backward pass; null: inference
  float* y;           // [T, O]
  Compute compute;
};

// One of the adapters of a mixed batch.
struct DoraMixedAdapter {
  LowRank low_rank;
  const float* gain;  // [O]
};

constexpr int64_t kMaxMixedAdapters = 64;  // they are a kernel parameter, of which there are 4 KiB

// A batch whose rows go through different adapters: row t of y is that of dora_forward (without a mask) with
// adapters[index[t]], or that of linear where index[t] is -1; on the CPU bit for bit. The weight is read as
// for a single adapter.
struct DoraMixedArgs {
  Weight weight;
  int64_t tokens;
  int64_t count;  // of adapters
  DoraMixedAdapter adapters[kMaxMixedAdapters];
  const float* x;        // [T, I]
  const int32_t* index;  // [T], in [-1, count): the caller has checked
  const float* bias;     // [O]; null: no bias
  float* y;              // [T, O]
};

// Gradients of a loss given dy, with dz = dy ∘ gain and q = dz·B:
//   dmagnitude[o] = Σ_t dy z / max(norm, 1e-12)    dbias = Σ_t dy    db = s · dzᵀ·xa    da = s · qᵀ·d
//   dx = dz·W + s·q·A without a mask, else dy·W + mask ∘ ((dy ∘ (gain − 1))·W + s·q·A)
// exact_norm also differentiates the norm: with c[o] = magnitude·dmagnitude / norm²,
//   db −= s · c ∘ (W·Aᵀ + s·B·(A·Aᵀ))    da −= s · ((c ∘ B)ᵀ·W + s·(Bᵀ·(c ∘ B))·A)
struct DoraBackwardArgs {
  Weight weight;
  LowRank low_rank;
  int64_t tokens;
  bool exact_norm;
  const float* x;          // [T, I]
  const float* mask;       // [T, I]; null: no dropout
  const float* dy;         // [T, O]
  const float* xa;         // [T, R] from the forward pass
  const float* z;          // [T, O] from the forward pass
  const float* norm;       // [O]
  const float* gain;       // [O]
  const float* magnitude;  // [O]
  float* dx;               // [T, I]; null: not wanted
  float* da;               // [R, I]
  float* db;               // [O, R]
  float* dmagnitude;       // [O]
  float* dbias;            // [O]; null: not wanted
  Compute compute;         // of the products with dy, x and W
};

// merged[o, i] = gain[o] · (W[o, i] + scale · (B·A)[o, i])
struct DoraMergeArgs {
  Weight weight;
  LowRank low_rank;
  const float* gain;  // [O]
  float* merged;      // [O, I]
};

// restored[o, i] = merged[o, i] / gain[o] − scale · (B·A)[o, i]. No gain is 0. May run in place.
struct DoraUnmergeArgs {
  int64_t rows, cols;
  LowRank low_rank;
  const float* merged;  // [O, I]
  const float* gain;    // [O]
  float* restored;      // [O, I]
};

// loss[0] = mean over t of −log softmax(logits[t, :])[labels[t]]; dlogits = (softmax − onehot) / T. T >= 1.
// labels lie in [0, classes); the caller has checked.
struct SoftmaxCrossEntropyArgs {
  int64_t tokens, classes;
  const float* logits;    // [T, C]
  const int32_t* labels;  // [T]
  float* loss;            // [1]
  float* dlogits;         // [T, C]; null: not wanted
};

// One AdamW step (Loshchilov and Hutter 2019, algorithm 2), in place; `step` counts from 1.
struct AdamwArgs {
  int64_t count, step;
  double lr, beta1, beta2, eps, weight_decay;  // 1 − beta is formed in f64
  const float* grad;
  float* param;
  float* m;  // first moment
  float* v;  // second moment
};

// An entry is null where the backend lacks the operation: ERR_UNSUPPORTED, never a silent copy to another
// device. Entries may throw spark::Error. On CUDA they enqueue on the current stream and return.
struct Backend {
  const char* name;
  void (*cast)(const CastArgs&);
  void (*amax)(const AmaxArgs&);
  void (*nvfp4_quantize)(const Nvfp4QuantizeArgs&);
  void (*nvfp4_dequantize)(const Nvfp4DequantizeArgs&);
  void (*fp8_quantize)(const Fp8QuantizeArgs&);
  void (*pack_weight)(const PackWeightArgs&);
  void (*linear)(const LinearArgs&);
  void (*linear_backward)(const LinearBackwardArgs&);
  void (*conv)(const ConvArgs&);
  void (*conv_backward)(const ConvBackwardArgs&);
  void (*conv_transpose)(const ConvTransposeArgs&);
  void (*linear_integer)(const LinearIntegerArgs&);
  void (*matmul)(const MatmulArgs&);
  void (*weight_norm2)(const WeightNorm2Args&);
  void (*dora_norm)(const DoraNormArgs&);
  void (*dora_forward)(const DoraForwardArgs&);
  void (*dora_mixed)(const DoraMixedArgs&);
  void (*dora_backward)(const DoraBackwardArgs&);
  void (*dora_merge)(const DoraMergeArgs&);
  void (*dora_unmerge)(const DoraUnmergeArgs&);
  void (*softmax_cross_entropy)(const SoftmaxCrossEntropyArgs&);
  void (*adamw)(const AdamwArgs&);
};

}  // namespace spark
