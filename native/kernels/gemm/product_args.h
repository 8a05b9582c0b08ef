// product_args.h: the parameters of a GEMM on the device; read by linear.cu and linear_mma.cu, filled
// by their launchers.
#pragma once

#include "backend/backend.h"
#include "core/float_formats.h"

namespace spark {

// A set of lines along K, f32: element (line, k) is
//   data[at] · mask[at] · (k_scale[k] + k_shift) · factor    with at = line · line_stride + k · k_stride
// where null pointers leave their factor out. One of the strides is 1.
struct Lines {
  const float* data = nullptr;
  int64_t line_stride = 0, k_stride = 1;
  const float* mask = nullptr;
  const float* k_scale = nullptr;
  float k_shift = 0;
  float factor = 1;
};

// Where sums[m, n] go, with at = m · row_stride + n · col_stride:
//   copy[at] = sum                     added to what is there when copy_add
//   out[at]  = activation(sum · factor · row_factor[m] · (col_factor[n] + col_shift) · mask[at] + bias[n])
//              + residual[at]          added to what is there when add
struct Epilogue {
  float* out = nullptr;
  int64_t row_stride = 0, col_stride = 1;
  bool add = false;
  float factor = 1;
  const float* row_factor = nullptr;
  const float* col_factor = nullptr;
  float col_shift = 0;
  const float* mask = nullptr;
  const float* bias = nullptr;
  Activation activation = Activation::kNone;
  const float* residual = nullptr;  // may be out
  float* copy = nullptr;
  bool copy_add = false;
  FloatType out_dtype = FloatType::kF32;  // 16 bits: `out` is an array of uint16_t, to which nothing is added
};

// Elements of a line along K in bf16 or f16.
inline SPARK_HOST_DEVICE int64_t padded_depth(int64_t depth) {
  return (depth + kDepthUnit - 1) / kDepthUnit * kDepthUnit;
}

// out[line, k] = rounded(lines(line, k) · k_factor[k]), [count, padded_depth(depth)]. k_factor may be null.
struct PackArgs {
  Lines lines;
  int64_t count, depth;
  const float* k_factor;
  uint16_t* out;
};

// sums[m, n] = Σ_{k < depth} a(m, k) · w(n, k) + Σ_{k < depth2} a2(m, k) · b2(n, k). w is a weight, whose
// lines are its rows (linear_*) or its columns (linear_backward_*).
struct ProductArgs {
  int64_t rows, cols;
  int64_t depth;
  Lines a;
  Weight w;
  int64_t depth2 = 0;
  Lines a2{}, b2{};
  Epilogue epilogue{};
  Compute compute = Compute::kF32;      // bf16, f16: a ProductMmaArgs is made of it
  const uint16_t* packed_a = nullptr;   // bf16, f16: `a` in them, struct PackArgs, with the row scales of a
                                        // weight whose columns are lines
  const uint16_t* rounded_a = nullptr;  // nvfp4: `a` as struct Nvfp4Rows, in the form of nvfp4_form()
  float a_scale = 0;              // nvfp4: the tensor scale that `a` is rounded with; 0: each row has its own
  uint16_t* y_rounded = nullptr;  // nvfp4: results as struct Nvfp4Rows, too, in the form of nvfp4_form()
  float y_scale = 0;              // their tensor scale. epilogue.out is f32, or null: not wanted
  float* parts = nullptr;         // [chunks of both segments, rows, cols]: sums of each instead; f32 only
};

// The same with packed lines. Where columns of the weight are the lines, `a` holds its row scales already.
struct ProductMmaArgs {
  int64_t rows, cols;
  int64_t depth;
  const uint16_t* a;
  Weight w;
  int64_t depth2;
  const uint16_t *a2, *b2;
  Epilogue epilogue;
  const float* floats = nullptr;  // `a` in f32 instead, for few rows: [rows, depth], see linear_few_mma.cu
};

// K in stripes of about the same length, whose sums are kept apart. See linear_batch_mma.cu.
struct Stripes {
  int64_t count;
  float* parts;  // [count, rows, cols]; null: the one stripe has its epilogue
};

// Some choices of one expert, or of none (expert = experts): order[start .. start + rows).
struct ExpertGroup {
  int32_t expert, start, rows;
};

// Choices sorted by expert, in groups of a few.
struct ExpertGroups {
  int32_t* order;       // [choices of all tokens]
  ExpertGroup* groups;  // as many as there can be
  int32_t* count;       // [1], of the groups
};

// Rows rounded to NVFP4 for products, each with a tensor scale of its own.
//   in codes  codes[rows, padded_depth(cols / 4)], four E2M1 codes in each element; scales[rows, cols / 16];
//             factors[rows], the tensor scales
//   in bf16   codes[rows, padded_depth(cols)] = code · block scale · tensor scale, exact in bf16
struct Nvfp4Rows {
  int64_t rows, cols;
  uint16_t* codes;
  uint8_t* scales;
  float* factors;
};

// Where a product or attention stores its results as such rows, all with one tensor scale: a multiple of
// kRoundedUnit of columns.
struct RoundedTarget {
  Nvfp4Rows rows;
  float scale;
};

// sums[m, n] = factors[m] · w_scale · Σ_k a(m, k) · w(n, k) of rows in codes; the codes and scales of w are
// [cols, depth] and [cols, depth / 16] without padding. depth counts elements, a multiple of 64; the
// addresses of scales are multiples of 4.
struct Fp4MmaArgs {
  int64_t rows, cols, depth;
  const uint16_t* a;
  const uint8_t* a_scales;
  const void* w;
  const uint8_t* w_scales;
  const float* factors;
  float w_scale;
  Epilogue epilogue;
};

// partial[span, o] = Σ_r b[o, r] · Σ_k weight[o, k] · a[r, k] over a span of columns k; a = high + low,
// packed.
struct DoraCrossArgs {
  Weight weight;
  LowRank low_rank;
  const uint16_t *high, *low;
  float* partial;
};

// The terms of a row norm: gram = A·Aᵀ; W·Aᵀ as `product` [O, R], or the spans of DoraCrossArgs::partial.
struct NormTerms {
  const float* gram;
  const float* product;  // null: not given
  const float* partial;
  int64_t spans;  // 0 when product is given
};

}  // namespace spark
