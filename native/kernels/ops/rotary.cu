// rotary.cu: rotary embeddings of the heads of queries and keys (struct RotaryArgs). A warp for each head,
// whose lanes take neighbouring pairs. Reference: native/backend/cpu/ops/rotary.cc
#include "backend/rotary_row.h"
#include "kernels/ops/strided.cuh"
#include "kernels/reduce.cuh"

extern "C" __global__ void rotary_f32(spark::RotaryArgs args) {
  using spark::kWarp;
  const int64_t head = spark::thread_index() / kWarp;
  if (head >= args.batch * args.tokens * args.heads) return;
  const int64_t row = spark::rotary_row(args, head), half = args.rotary / 2;
  const int64_t step = args.interleaved ? 2 : 1, apart = args.interleaved ? 1 : half;
  const float* __restrict__ x = args.x + head * args.depth;
  const float* __restrict__ cos = args.cos + row * half, * __restrict__ sin = args.sin + row * half;
  float* __restrict__ y = args.y + head * args.depth;
  const int lane = threadIdx.x % kWarp;
#pragma unroll 2
  for (int64_t i = lane; i < half; i += kWarp) {
    const float a = x[i * step], b = x[i * step + apart], c = cos[i], s = sin[i];
    y[i * step] = a * c - b * s;
    y[i * step + apart] = a * s + b * c;
  }
  for (int64_t e = args.rotary + lane; e < args.depth; e += kWarp) y[e] = x[e];
}
