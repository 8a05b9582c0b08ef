// byte_kernels.h: the inner loops of quantized layers. Bytes are unsigned; `flip` is 0, or 0x80 to move
// signed ones by 128. All results are exact, or rounded in one way, so every instruction set gives the same
// bytes.
#pragma once

#include <cstdint>

namespace spark::cpu {

// y = saturate(round(value) + zero), rounded to nearest even, as a byte that is signed or not.
struct ByteRounding {
  int32_t zero;
  bool is_signed;
};

struct ByteKernels {
  // to[i] = the bytes rows[0][i] … rows[3][i], the first one lowest, for i < count
  void (*interleave)(const uint8_t* const (&rows)[4], int64_t count, uint8_t flip, uint32_t* to);
  // sums[i] = Σ_k weights[k] · data[offset[k] + i] for i < count and k < depth. Reads and writes up to 15
  // elements more.
  void (*correlate)(const int32_t* weights, const uint8_t* data, const int64_t* offset, int64_t depth,
                    int64_t count, int32_t* sums);
  // y[i] = the largest data[offset[k] + i] for k < depth, which is at least 1. Reads and writes up to 15
  // more.
  void (*max_windows)(const uint8_t* data, const int64_t* offset, int64_t depth, int64_t count, uint8_t* y);
  // y[i] = rounded((sums[i] + shift) · scale), or each with a shift and a scale of its own
  void (*requantize)(const int32_t* sums, int64_t count, uint32_t shift, float scale,
                     const ByteRounding& rounding, uint8_t* y);
  void (*requantize_each)(const int32_t* sums, int64_t count, const uint32_t* shift, const float* scale,
                          const ByteRounding& rounding, uint8_t* y);
  // y[i] = rounded(x[i] / scale); a NaN gives 0
  void (*quantize)(const float* x, int64_t count, float scale, const ByteRounding& rounding, uint8_t* y);
  // y[i] = table[x[i]] for a table of 256 entries; y may be x
  void (*lookup)(const uint8_t* x, int64_t count, const uint8_t* table, uint8_t* y);
  // y[i] = (x[i] − zero) · scale
  void (*dequantize)(const uint8_t* x, bool is_signed, int64_t count, int32_t zero, float scale, float* y);
};

}  // namespace spark::cpu
