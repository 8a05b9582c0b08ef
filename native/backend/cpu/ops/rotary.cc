// rotary.cc: rotary embeddings of the heads of queries and keys.
#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/rotary_row.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

struct Angles {
  const float *cos, *sin;
  int64_t count;
};

// Pairs of elements `apart`, whose first ones are `step` apart.
void rotate(const Angles& angles, int64_t step, int64_t apart, const float* __restrict x,
            float* __restrict y) {
  for (int64_t i = 0; i < angles.count; ++i) {
    const float a = x[i * step], b = x[i * step + apart];
    y[i * step] = a * angles.cos[i] - b * angles.sin[i];
    y[i * step + apart] = a * angles.sin[i] + b * angles.cos[i];
  }
}

}  // namespace

void rotary(const RotaryArgs& args) {
  const int64_t half = args.rotary / 2;
  const int64_t heads = args.batch * args.tokens * args.heads;
  parallel_for(heads, grain_for(args.depth, 1), [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      const int64_t row = rotary_row(args, head);
      const Angles angles{args.cos + row * half, args.sin + row * half, half};
      const float* x = args.x + head * args.depth;
      float* y = args.y + head * args.depth;
      args.interleaved ? rotate(angles, 2, 1, x, y) : rotate(angles, 1, half, x, y);
      std::copy(x + args.rotary, x + args.depth, y + args.rotary);
    }
  });
}

}  // namespace spark::cpu
