// backend.h: the table of operations that every backend fills. This file and view_args.h, which holds those
// on tensors of any shape, are the contract: shapes, dtypes, aliasing.
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

#include "backend/dora_args.h"
#include "backend/integer_args.h"
#include "backend/layer_args.h"
#include "backend/network_args.h"
#include "backend/view_args.h"
#include "backend/weight.h"
#include "core/dtype.h"
#include "core/quantizers.h"

namespace spark {

// How a cast to f8_e8m0, which holds powers of two, rounds: to the next larger one, the next smaller one, or
// the nearest, the larger one of two that are as near.
enum class Rounding : uint8_t { kUp, kDown, kNearest };

// dst[i] = src[i] in another format, for i < count; round to nearest even, what is smaller than f32 through
// f32, which holds every such format exactly. f8: `saturate` sends ±Inf and everything out of range to the
// largest finite value; otherwise f8_e5m2 gives ±Inf and the others NaN. NaN stays NaN, but for f4, where it
// is 0. Floats become integers by dropping their fraction; `saturate` sends what is out of range to the
// nearest integer of the type, NaN to 0; otherwise integers wrap around, and a float beyond 64 bits gives the
// nearest 64-bit integer first. bool is 1 for all but 0. Any dtype but nvfp4. Recipe: docs/numerics.md.
struct CastArgs {
  DType src_dtype, dst_dtype;
  int64_t count;
  bool saturate;
  const void* src;
  void* dst;
  Rounding rounding = Rounding::kUp;  // to f8_e8m0
  bool bits = false;                  // dst takes the bits instead of the number; both types are of one size
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

// Block scales between row-major order and that of the block-scaled products of cuBLASLt: tiles of 128 x 4 in
// row-major order, scale (r, c) of a tile at r % 32 · 16 + r / 32 · 4 + c. Beyond the matrix tiles hold 0.
struct SwizzleScalesArgs {
  int64_t rows, cols;
  bool inverse;        // from tiles to rows
  const uint8_t* src;  // [rows, cols]; tiles when inverse
  uint8_t* dst;        // [ceil(rows/128), ceil(cols/4), 512]; rows when inverse
};

// Where a scale lies among the tiles.
SPARK_HOST_DEVICE inline int64_t swizzled_place(int64_t row, int64_t col, int64_t cols) {
  const int64_t tile = row / 128 * ((cols + 3) / 4) + col / 4;
  return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4;
}

// gelu: x/2 · (1 + erf(x/√2)); gelu_tanh: x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))); silu: x / (1 + e^-x)
enum class Activation : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kSilu, kSigmoid, kTanh };

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

// y[t, o] = bias[o] + Σ_i (x[t, i] − x_zero[t]) · (w[o, i] − w_zero[o]) as `result` says. A packed w is i8 in
// panels of 32 features that are interleaved by four along I: [⌈O/32⌉, ⌈I/4⌉, 32, 4]; what is beyond I and O
// may be anything.
struct LinearIntegerArgs {
  int64_t tokens, rows, cols;  // T, O, I
  bool x_signed, w_signed;     // i8, else u8
  bool packed;
  const void* x;          // [T, I]
  const void* w;          // [O, I]
  const int32_t* x_zero;  // [T]; null: 0
  const int32_t* w_zero;  // [O]; null: 0
  const int32_t* w_sum;   // [O]: Σ_i w[o, i]; null: not known
  const int32_t* bias;    // [O]; null: 0
  IntegerResult result;   // y: [T, O]
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

// Matrix p of data is [O, C], packed: element p of G · W[o, c] · Gᵀ, the [6, 6] transform of a filter of 3 x
// 3 for Winograd's algorithm F(4 x 4, 3 x 3) (Lavin and Gray 2016) with the points 0, ±√½, ±√2 and ∞, formed
// in f64.
struct WinogradWeightArgs {
  Weight weight;  // [O, C · 9]
  float* data;    // [36, ceil(O/32), C, 32]
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
  Compute compute;  // f32, bf16 or f16
  float* y;         // [N, O, out]
  // The weight as winograd_weight() transforms it, for kernels of 3 x 3 along two axes with
  // strides, dilations and groups of 1. Lets z be computed in tiles of 4 x 4, with other roundings. null: not
  // at hand.
  const float* winograd;
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
  Compute compute;  // of dx and dweight: f32, bf16 or f16
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
  Compute compute;    // f32, bf16 or f16
};

// z[n, o, q] = bias[o] + Σ_{c, k} (x[n, g·C/G + c, p(q, k)] − x_zero) · (w[o, c, k] − w_zero[o]) as `result`
// says, x being x_zero outside of the image. w lies in rows of padded_bytes(C/G · taps), which end in zeros.
struct ConvIntegerArgs {
  ConvShape shape;
  bool x_signed;          // i8, else u8
  const void* x;          // [N, C, image]
  const int8_t* w;        // [O, padded_bytes(C/G · taps)]
  const int32_t* x_zero;  // [1], a number of the type of x; null: 0
  const int32_t* w_zero;  // [O]; null: 0
  const int32_t* w_sum;   // [O]: Σ_{c, k} w[o, c, k]; null: not known
  const int32_t* bias;    // [O]; null: 0
  IntegerResult result;   // y: [N, O, out]
};

// A number that is fixed when an operation is prepared, or read anew at each run of a plan (learning rate).
struct Scalar {
  double value;
  const double* at;  // [1]; null: value

  SPARK_HOST_DEVICE double get() const { return at ? *at : value; }
};

// One AdamW step (Loshchilov and Hutter 2019, algorithm 2), in place; `step` counts from 1.
struct AdamwArgs {
  int64_t count;
  Scalar step, lr;
  double beta1, beta2, eps, weight_decay;  // 1 − beta is formed in f64
  const float* grad;
  float* param;
  float* m;  // first moment
  float* v;  // second moment
};

// An entry is null where the backend lacks the operation: ERR_UNSUPPORTED, never a silent copy to another
// device. Entries may throw spark::Error. On CUDA they enqueue on the current stream and return.
struct Backend {
  const char* name;
#define SPARK_OPERATION(entry, Args, name) void (*entry)(const Args&) = nullptr;
#include "backend/operations.def"
};

}  // namespace spark
