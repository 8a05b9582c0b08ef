// integer_args.h: the part of backend.h that is about numbers of 8 bits: how sums of their products and
// floats become such numbers. Its conventions hold here. A byte is i8 or u8.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace spark {

// What becomes of a sum of integers of feature o. Without a scale it is y, in i32, modulo 2^32. Otherwise
//   y = saturate(round(sum · scale[o]) + zero)
// in u8 or i8: sum, scale and their product in f32, rounded to nearest even.
struct IntegerResult {
  DType dtype;          // i32, u8 or i8
  const float* scale;   // [O]; null: dtype is i32
  const int32_t* zero;  // [1], a number of dtype; null: 0
  void* y;
};

// Bytes of a row of so many in the weight of a ConvIntegerArgs.
inline int64_t padded_bytes(int64_t cols) { return (cols + 63) / 64 * 64; }

// y[o, c, i] = saturate(round(x[o, c, i] / scale[c]) + zero[c]) in u8 or i8, the quotient in f32, rounded to
// nearest even; a NaN gives 0.
struct QuantizeArgs {
  DType dtype;  // u8 or i8
  int64_t outer, channels, inner;
  const float* x;       // [outer, channels, inner]
  const float* scale;   // [channels]
  const int32_t* zero;  // [channels], numbers of dtype; null: 0
  void* y;              // [outer, channels, inner]
};

// y[o, c, i] = (x[o, c, i] − zero[c]) · scale[c] in f32.
struct DequantizeArgs {
  DType dtype;  // u8 or i8
  int64_t outer, channels, inner;
  const void* x;        // [outer, channels, inner]
  const float* scale;   // [channels]
  const int32_t* zero;  // [channels], numbers of dtype; null: 0
  float* y;             // [outer, channels, inner]
};

// A tensor of bytes with one scale; x = (byte − zero) · scale.
struct ScaledBytes {
  DType dtype;  // u8 or i8
  void* data;
  const float* scale;   // [1]
  const int32_t* zero;  // [1], a number of dtype; null: 0
};

enum class BytesFn : uint8_t { kAdd, kMul };

// y = quantized(a ∘ b), each step in f32, as QuantizeArgs says.
struct BinaryBytesArgs {
  BytesFn fn;
  int64_t count;
  ScaledBytes a, b, y;  // [count]; y may be a or b
};

// y[r] = quantized(Σ_i (x[r, i] − x_zero) · x_scale / cols): the sum is exact, the mean rounded to f32 once.
struct MeanBytesArgs {
  int64_t rows, cols;  // cols at least 1
  ScaledBytes x;       // [rows, cols]
  ScaledBytes y;       // [rows]
};

// y[i] = table[x[i]]: a function of one byte. Signed ones count as their bits.
struct LookupArgs {
  int64_t count;
  const uint8_t* x;
  const uint8_t* table;  // [256]
  uint8_t* y;            // may be x
};

}  // namespace spark
