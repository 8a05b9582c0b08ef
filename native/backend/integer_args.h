// integer_args.h: int8: products of bytes, quantization, operations on quantized bytes. Part of the contract
// in backend.h. A byte is i8 or u8.
#pragma once

#include <cstdint>

#include "backend/conv_args.h"
#include "core/dtype.h"
#include "core/float_formats.h"

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
SPARK_HOST_DEVICE inline int64_t padded_bytes(int64_t cols) { return (cols + 63) / 64 * 64; }

// Channels of a group side by side, in bytes: padded to a multiple of this.
constexpr int64_t kByteChannelUnit = 16;
inline int64_t byte_channels(const ConvShape& shape) {
  return (shape.channels / shape.groups + kByteChannelUnit - 1) / kByteChannelUnit * kByteChannelUnit;
}

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

// z[n, o, q] = bias[o] + Σ_{c, k} (x[n, g·C/G + c, p(q, k)] − x_zero) · (w[o, c, k] − w_zero[o]) as `result`
// says, x being x_zero outside of the image. w lies in rows of padded_bytes(C/G · taps), which end in zeros.
struct ConvIntegerArgs {
  ConvShape shape;
  bool x_signed;  // i8, else u8
  const void* x;  // [N, C, image]
  // Of a w of [O, padded_bytes(taps · byte_channels())] instead, the channels of each tap side by side, on a
  // multiple of 16 bytes, with zeros behind channels and taps. CUDA only.
  bool channels_last;
  const int8_t* w;        // [O, padded_bytes(C/G · taps)]
  const int32_t* x_zero;  // [1], a number of the type of x; null: 0
  const int32_t* w_zero;  // [O]; null: 0
  const int32_t* w_sum;   // [O]: Σ_{c, k} w[o, c, k]; null: not known
  const int32_t* bias;    // [O]; null: 0
  IntegerResult result;   // y: [N, O, out]
  // kByteChannelUnit bytes, each the zero point of x, where x has its channels last, [N, image, C], on a
  // multiple of 16 bytes, beside channels_last where the channels of a group are a multiple of
  // kByteChannelUnit; null: x is planes.
  const uint8_t* x_outside;
  // The bytes of y with their channels last, [N, out, O], on a multiple of 16 bytes, beside channels_last and
  // a scale where the filters of a group are a multiple of kByteChannelUnit; null: not wanted. y may be null
  // where this is not.
  uint8_t* y_last;
};

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
