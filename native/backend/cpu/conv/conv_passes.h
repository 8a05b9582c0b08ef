// conv_passes.h: convolutions over padded inputs (padded_input.h), as products or, where a group has few
// lines, as plain loops.
#pragma once

#include <functional>
#include <vector>

#include "backend/cpu/conv/padded_input.h"
#include "backend/cpu/gemm/epilogue.h"
#include "backend/cpu/gemm/operand.h"

namespace spark::cpu {

// What is convolved: [batch, groups · channels, image].
struct ConvSource {
  const float* data;
  int64_t batch, groups, channels;
  int64_t pixels;
  const PaddedInput* input;
  bool compact = false;  // [batch, image, groups · channels], small ones
};

// Receives the sums of a line of image n at positions [position, position + count).
using ConvStore =
    std::function<void(int64_t n, int64_t line, int64_t position, int64_t count, const float* sums)>;

// sums(n, g · lines + l, q) = Σ_{c, tap} coefficients[g · lines + l, c · taps + tap] · source(n, g, c,
// offset[tap] + q)
struct ConvPart {
  std::vector<int64_t> offsets;  // of taps
  int64_t size[3];               // of positions
  Weight coefficients;           // [groups · lines, channels · taps]
  ConvStore store;
  Epilogue epilogue{};   // unless its y is null, what sums may become instead of going to `store`: y is
                         // [batch, groups · lines, positions]
  bool compact = false;  // y, and the residual, is [batch, positions, groups · lines]; not where loops_over()
};

// All parts; their results differ in their places only. Where loops_over() the coefficients are f32.
void convolve(const ConvSource& source, const std::vector<ConvPart>& parts);

// Whether convolve() loops over the positions instead of forming a product.
bool loops_over(int64_t groups, int64_t lines);

// The gradient of the coefficients of a part: sums[g · lines + l, c · taps + tap] = Σ_{n, q} gradient[n, g ·
// lines + l, q] · source(n, g, c, offset[tap] + q)
void coefficient_gradient(const ConvSource& source, const std::vector<int64_t>& taps,
                          const int64_t (&size)[3], const float* gradient, int64_t lines, float* sums);

}  // namespace spark::cpu
