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

constexpr int64_t kLines = 8;

// kLines lines side by side, for which taps and weights are read once.
void resample_lines(const ResampleArgs& args, const float* x, float* y) {
  for (int64_t q = 0; q < args.out; ++q) {
    float sums[kLines];
    std::fill_n(sums, kLines, args.offset ? args.offset[q] : 0);
    for (int64_t t = q * args.count; t < (q + 1) * args.count; ++t) {
      const float* from = x + inside(args.taps[t], args.size);
      for (int64_t line = 0; line < kLines; ++line) sums[line] += args.weights[t] * from[line * args.size];
    }
    for (int64_t line = 0; line < kLines; ++line) y[line * args.out + q] = sums[line];
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

// A row of elements with kCount taps, each sum in a register.
template <int kCount>
void weighted_row(const ResampleArgs& args, const float* x, int64_t q, float* y) {
  const float* from[kCount];
  for (int k = 0; k < kCount; ++k) from[k] = x + inside(args.taps[q * kCount + k], args.size) * args.inner;
  const float* weights = args.weights + q * kCount;
  for (int64_t i = 0; i < args.inner; ++i) {
    float sum = args.offset ? args.offset[q] : 0;
    for (int k = 0; k < kCount; ++k) sum += weights[k] * from[k][i];
    y[i] = sum;
  }
}

// An element of the resampled axis: a row of `inner` elements.
void resample_row(const ResampleArgs& args, const float* x, int64_t q, float* y) {
  if (args.count == 1 && args.weights[q] == 1 && !args.offset) {
    std::copy_n(x + inside(args.taps[q], args.size) * args.inner, args.inner, y);
    return;
  }
  if (args.count == 2) return weighted_row<2>(args, x, q, y);
  if (args.count == 4) return weighted_row<4>(args, x, q, y);
  for (int64_t i = 0; i < args.inner; ++i) y[i] = args.offset ? args.offset[q] : 0;
  for (int64_t t = q * args.count; t < (q + 1) * args.count; ++t) {
    const float* from = x + inside(args.taps[t], args.size) * args.inner;
    const float weight = args.weights[t];
    for (int64_t i = 0; i < args.inner; ++i) y[i] += weight * from[i];
  }
}

void resample_all_lines(const ResampleArgs& args) {
  const int64_t groups = (args.outer + kLines - 1) / kLines;
  parallel_for(groups, grain_for(kLines * args.out * args.count, 1 << 14), [&](int64_t begin, int64_t end) {
    int64_t line = begin * kLines;
    const int64_t last = std::min(end * kLines, args.outer);
    for (; line + kLines <= last; line += kLines)
      resample_lines(args, args.x + line * args.size, args.y + line * args.out);
    for (; line < last; ++line)
      resample_elements(args, args.x + line * args.size, 0, args.out, args.y + line * args.out);
  });
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
  if (args.inner == 1 && args.outer >= kLines * thread_count()) return resample_all_lines(args);
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
