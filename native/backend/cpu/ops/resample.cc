// resample.cc: resampling along one axis by weighted taps (ONNX Resize).
#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/inside.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace spark::cpu {

void resample(const ResampleArgs& args) {
  for (int64_t t = 0; t < args.out * args.count; ++t) {
    if (args.taps[t] < 0 || args.taps[t] >= args.size) {
      throw Error("ERR_ARGUMENT", message("taps[", t, "] is ", args.taps[t], ", but size is ", args.size));
    }
  }
  const int64_t rows = args.outer * args.out;
  parallel_for(rows, grain_for(args.count * args.inner, 1 << 12), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t outer = row / args.out, q = row % args.out;
      float* y = args.y + row * args.inner;
      for (int64_t i = 0; i < args.inner; ++i) y[i] = args.offset ? args.offset[q] : 0;
      for (int64_t t = q * args.count; t < (q + 1) * args.count; ++t) {
        const float* x = args.x + (outer * args.size + inside(args.taps[t], args.size)) * args.inner;
        const float weight = args.weights[t];
        for (int64_t i = 0; i < args.inner; ++i) y[i] += weight * x[i];
      }
    }
  });
}

}  // namespace spark::cpu
