// rotary_row.h: where the heads of rotary embeddings lie, for the CPU and for CUDA.
#pragma once

#include "backend/network_args.h"
#include "core/float_formats.h"

namespace spark {

// The row of cos and sin, of batch · tokens, that a head of x is rotated by.
SPARK_HOST_DEVICE inline int64_t rotary_row(const RotaryArgs& args, int64_t head) {
  if (!args.heads_first) return head / args.heads;
  return head / args.tokens / args.heads * args.tokens + head % args.tokens;
}

}  // namespace spark
