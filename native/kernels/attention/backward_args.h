// backward_args.h: the operands of the gradients of attention in 16 bits, for the kernels and their
// launchers.
#pragma once

#include <cstdint>

#include "backend/network_args.h"

namespace spark {

// Elements of a packed row: a multiple of what tensor cores multiply in a step.
constexpr SPARK_HOST_DEVICE int64_t packed_width(int64_t width) { return (width + 15) / 16 * 16; }

// The rows of all heads of an operand, [batch, heads, rows, packed_width(width)], with zeros behind `width`.
struct AttentionPackArgs {
  int64_t batch, heads, rows, width;
  HeadStrides strides;
  const float* data;
  uint16_t* packed;
};

struct PackedAttention {
  const uint16_t *q, *k, *v, *dy;
};

}  // namespace spark
