// resample.cc: resampling along one axis by weighted taps (ONNX Resize).
#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/inside.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// Single elements of the resampled axis, from first to last.
void resample_elements(const ResampleArgs& args, const float* x, int64_t first, int64_t last, float* y) {
  for (int64_t q = first; q < last; ++q) {
    float sum = args.offset ? args.offset[q] : 0;
    for (int64_t t = q * args.count; t < (q + 1) * args.count; ++t) {
      sum += args.weights[t] * x[inside(args.taps[t], args.size)];
    }
    y[q] = sum;
  }
}

// How often each element is repeated, where that is all; 0 elsewhere.
int64_t times_repeated(const ResampleArgs& args) {
  const int64_t times = args.size > 0 ? args.out / args.size : 0;
  if (args.count != 1 || args.offset || times * args.size != args.out) return 0;
  for (int64_t q = 0; q < args.out; ++q) {
    if (args.taps[q] != q / times || args.weights[q] != 1) return 0;
  }
  return times;
}

void repeat_elements(const float* x, int64_t size, int64_t times, float* y) {
  if (times == 2) {
    for (int64_t i = 0; i < size; ++i) y[2 * i] = y[2 * i + 1] = x[i];
  } else {
    for (int64_t i = 0; i < size; ++i) std::fill_n(y + times * i, times, x[i]);
  }
}

// An element of the resampled axis: a row of `inner` elements.
void resample_row(const ResampleArgs& args, const float* x, int64_t q, float* y) {
  if (args.count == 1 && args.weights[q] == 1 && !args.offset) {
    std::copy_n(x + inside(args.taps[q], args.size) * args.inner, args.inner, y);
    return;
  }
  for (int64_t i = 0; i < args.inner; ++i) y[i] = args.offset ? args.offset[q] : 0;
  for (int64_t t = q * args.count; t < (q + 1) * args.count; ++t) {
    const float* from = x + inside(args.taps[t], args.size) * args.inner;
    const float weight = args.weights[t];
    for (int64_t i = 0; i < args.inner; ++i) y[i] += weight * from[i];
  }
}

}  // namespace

void resample(const ResampleArgs& args) {
  for (int64_t t = 0; t < args.out * args.count; ++t) {
    if (args.taps[t] < 0 || args.taps[t] >= args.size) {
      throw Error("ERR_ARGUMENT", message("taps[", t, "] is ", args.taps[t], ", but size is ", args.size));
    }
  }
  const int64_t times = args.inner == 1 ? times_repeated(args) : 0;
  if (times > 0) {
    return parallel_for(args.outer, grain_for(args.out, 1 << 14), [&](int64_t begin, int64_t end) {
      repeat_elements(args.x + begin * args.size, (end - begin) * args.size, times,
                      args.y + begin * args.out);
    });
  }
  const int64_t rows = args.outer * args.out;
  parallel_for(rows, grain_for(args.count * args.inner, 1 << 12), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end;) {
      const int64_t outer = row / args.out, first = row % args.out;
      const int64_t last = std::min(args.out, first + end - row);
      const float* x = args.x + outer * args.size * args.inner;
      float* y = args.y + outer * args.out * args.inner;
      if (args.inner == 1) resample_elements(args, x, first, last, y);
      if (args.inner > 1) {
        for (int64_t q = first; q < last; ++q) resample_row(args, x, q, y + q * args.inner);
      }
      row += last - first;
    }
  });
}

}  // namespace spark::cpu
