// rotary.cu: rotary embeddings of the heads of queries and keys (struct RotaryArgs). A thread for each
// element of y: neighbours read neighbours, and both elements of a pair come from one sector or two.
// Reference: native/backend/cpu/ops/rotary.cc
#include "kernels/ops/strided.cuh"

extern "C" __global__ void rotary_f32(spark::RotaryArgs args) {
  const int64_t at = spark::thread_index();
  if (at >= args.batch * args.tokens * args.heads * args.depth) return;
  const int64_t head = at / args.depth, e = at - head * args.depth;
  if (e >= args.rotary) {
    args.y[at] = args.x[at];
    return;
  }
  const int64_t inner = args.heads_first ? args.tokens : args.heads, outer = head / inner;
  const int64_t row = args.heads_first ? outer / args.heads * args.tokens + head % inner : outer;
  const int64_t half = args.rotary / 2, apart = args.interleaved ? 1 : half;
  const bool first = args.interleaved ? e % 2 == 0 : e < half;
  const int64_t i = row * half + (args.interleaved ? e / 2 : e % half);
  const float x = args.x[at], other = args.x[first ? at + apart : at - apart];
  args.y[at] = first ? x * args.cos[i] - other * args.sin[i] : other * args.sin[i] + x * args.cos[i];
}
