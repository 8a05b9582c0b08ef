// norm.cc: layer, group and RMS normalization and their gradients.
#include <cmath>
#include <memory>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/columns.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

int64_t grain(int64_t cols) { return grain_for(cols, 1 << 12); }

// Calls body(first, count, j) for the runs of a row that share an element of scale.
template <typename Body>
void for_each_run(int64_t row, int64_t cols, int64_t groups, int64_t inner, const Body& body) {
  const int64_t first = row % groups * (cols / inner);
  for (int64_t i = 0; i < cols; i += inner) body(i, inner, first + i / inner);
}

void norm_row(const RowKernels& loops, const NormArgs& args, int64_t row) {
  const int64_t cols = args.cols;
  const float* x = args.x + row * cols;
  float* y = static_cast<float*>(args.y) + row * cols;
  const float mean = args.centered ? loops.sum(x, cols) / cols : 0;
  const float inv_std = 1 / std::sqrt(loops.square_sum(x, cols, mean) / cols + args.eps);
  if (args.mean) args.mean[row] = mean;
  if (args.inv_std) args.inv_std[row] = inv_std;
  if (args.inner == 1) {
    const int64_t first = row % args.groups * cols;
    loops.normalize(x, cols, mean, inv_std, args.scale ? args.scale + first : nullptr,
                    args.bias ? args.bias + first : nullptr, y);
    return;
  }
  loops.normalize(x, cols, mean, inv_std, nullptr, nullptr, y);
  if (!args.scale && !args.bias) return;
  for_each_run(row, cols, args.groups, args.inner, [&](int64_t i, int64_t count, int64_t j) {
    loops.affine(y + i, count, args.scale ? args.scale[j] : 1, args.bias ? args.bias[j] : 0, y + i);
  });
}

// dx of a row, its mean taken away where the row is `centered`.
void norm_row_backward(const RowKernels& loops, const NormBackwardArgs& args, int64_t row, float* spread) {
  const int64_t cols = args.cols;
  const float *x = args.x + row * cols, *dy = args.dy + row * cols;
  const float mean = args.centered ? args.mean[row] : 0, inv_std = args.inv_std[row];
  const float* scale = args.scale;
  if (scale && args.inner > 1) {
    for_each_run(row, cols, args.groups, args.inner, [&](int64_t i, int64_t count, int64_t j) {
      for (int64_t at = i; at < i + count; ++at) spread[at] = args.scale[j];
    });
    scale = spread;
  } else if (scale) {
    scale += row % args.groups * cols;
  }
  float sums[2];
  loops.gradient_sums(dy, scale, x, mean, cols, sums);
  const float first = args.centered ? sums[0] / cols : 0;
  loops.normalize_backward(dy, scale, x, mean, cols, inv_std, first, sums[1] * inv_std * inv_std / cols,
                           args.dx + row * cols);
}

void input_gradient(const NormBackwardArgs& args) {
  const RowKernels& loops = kernels().rows;
  const int64_t lanes = std::min<int64_t>(args.rows, 4 * thread_count());  // pieces of parallel_for
  const bool spread = args.scale && args.inner > 1;
  const std::unique_ptr<float[]> workspace(spread ? new float[lanes * args.cols] : nullptr);
  parallel_for(lanes, 1 + (grain(args.cols) * lanes) / (args.rows + 1), [&](int64_t begin, int64_t end) {
    for (int64_t lane = begin; lane < end; ++lane) {
      for (int64_t row = lane * args.rows / lanes; row < (lane + 1) * args.rows / lanes; ++row) {
        norm_row_backward(loops, args, row, spread ? workspace.get() + lane * args.cols : nullptr);
      }
    }
  });
}

float standardized(const NormBackwardArgs& args, int64_t row, int64_t at) {
  return (args.x[at] - (args.centered ? args.mean[row] : 0)) * args.inv_std[row];
}

// Sums over the rows, each element of scale having one column: rows of all groups lie behind each other.
void column_gradients(const NormBackwardArgs& args) {
  const int64_t cols = args.groups * args.cols, rows = args.rows / args.groups;
  if (args.dbias) {
    column_sums(
        rows, cols, [&](int64_t at) { return args.dy[at]; },
        [&](int64_t j, float sum) { args.dbias[j] = sum; });
  }
  if (args.dscale) {
    column_sums(
        rows, cols, [&](int64_t at) { return args.dy[at] * standardized(args, at / args.cols, at); },
        [&](int64_t j, float sum) { args.dscale[j] = sum; });
  }
}

// Sums over runs of `inner` elements, which every image has one of.
void run_gradients(const NormBackwardArgs& args) {
  const RowKernels& loops = kernels().rows;
  const int64_t per_row = args.cols / args.inner, count = args.groups * per_row,
                images = args.rows / args.groups;
  parallel_for(count, grain(images * args.inner), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      float dscale = 0, dbias = 0;
      for (int64_t n = 0; n < images; ++n) {
        const int64_t row = n * args.groups + j / per_row, at = row * args.cols + j % per_row * args.inner;
        float sums[2];
        loops.gradient_sums(args.dy + at, nullptr, args.x + at, args.centered ? args.mean[row] : 0,
                            args.inner, sums);
        dbias += sums[0];
        dscale += sums[1] * args.inv_std[row];
      }
      if (args.dscale) args.dscale[j] = dscale;
      if (args.dbias) args.dbias[j] = dbias;
    }
  });
}

}  // namespace

void norm(const NormArgs& args) {
  const RowKernels& loops = kernels().rows;
  parallel_for(args.rows, grain(args.cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) norm_row(loops, args, row);
  });
}

void norm_backward(const NormBackwardArgs& args) {
  if (args.dx && args.rows > 0) input_gradient(args);
  if (!args.dscale && !args.dbias) return;
  if (args.inner == 1) {
    column_gradients(args);
  } else {
    run_gradients(args);
  }
}

}  // namespace spark::cpu
