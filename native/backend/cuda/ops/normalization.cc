// normalization.cc: launchers of softmax, normalizations and batch statistics.
#include <algorithm>

#include "backend/cuda/cuda.h"
#include "backend/cuda/gemm/column_sums.h"
#include "backend/cuda/quantize/nvfp4_rows.h"
#include "backend/cuda/runtime/launch.h"
#include "core/error.h"
#include "kernels/gemm/blocks.h"
#include "kernels/ops/blocks.h"

namespace spark::cuda {
namespace {

using normalization_block::kThreads;
using normalization_block::kThreadsOfLong;
constexpr int64_t kLong = 2048;  // elements of a row from which on more threads are faster, however few rows

// A block for each row (or channel).
template <typename Args>
void launch_rows(const char* kernel, int64_t rows, const Args& args) {
  launch("normalization", kernel, Grid{rows}, Threads{kThreads}, 0, args);
}

// Where each element of scale has a column: sums of chunks of the rows, and their sums.
void columns_gradient(const NormBackwardArgs& args) {
  using namespace column_sums_block;
  const int64_t cols = args.groups * args.cols;
  const int64_t chunks = std::max<int64_t>(ceil_div(args.rows / args.groups, kChunk), 1);
  const int64_t parts = chunks > 1 ? chunks * cols : 0;
  const Scratch of_scale(args.dscale ? parts * sizeof(float) : 0),
      of_bias(args.dbias ? parts * sizeof(float) : 0);
  launch("normalization", "norm_columns_gradient_f32", Grid{ceil_div(cols, kWidth) * chunks},
         Threads{kWidth, kHeight}, 0, args, chunks > 1 ? of_scale.as<float>() : args.dscale,
         chunks > 1 ? of_bias.as<float>() : args.dbias);
  if (chunks == 1) return;
  if (args.dscale) add_column_sums(of_scale.as<float>(), chunks, cols, nullptr, args.dscale);
  if (args.dbias) add_column_sums(of_bias.as<float>(), chunks, cols, nullptr, args.dbias);
}

}  // namespace

void softmax(const SoftmaxArgs& args) { launch_rows("softmax_f32", args.rows, args); }

void softmax_backward(const SoftmaxBackwardArgs& args) {
  launch_rows("softmax_backward_f32", args.rows, args);
}

void norm(const NormArgs& args) {
  const Threads threads{args.cols < kLong ? kThreads : kThreadsOfLong};
  if (args.y_half) {
    return launch("normalization", message("norm_f32_", dtype_name(dtype_of(args.half_dtype))),
                  Grid{args.rows}, threads, 0, args);
  }
  if (!args.y_rounded) {
    return launch("normalization", message("norm_", dtype_name(dtype_of(args.y_dtype))), Grid{args.rows},
                  threads, 0, args);
  }
  check_nvfp4_memory(args.y_rounded);
  const Nvfp4Form form = nvfp4_form(args.rows, args.cols);
  launch("normalization", form == Nvfp4Form::kCodes ? "norm_nvfp4_codes" : "norm_nvfp4_bf16", Grid{args.rows},
         threads, 0, args, nvfp4_rows_in(args.y_rounded, form, args.rows, args.cols));
}

void norm_backward(const NormBackwardArgs& args) {
  if (args.dx) launch_rows("norm_backward_f32", args.rows, args);
  if (!args.dscale && !args.dbias) return;
  if (args.inner == 1) {
    columns_gradient(args);
  } else {
    launch_rows("norm_scale_gradient_f32", args.groups * (args.cols / args.inner), args);
  }
}

void batch_statistics(const BatchStatisticsArgs& args) {
  launch_rows("batch_statistics_f32", args.channels, args);
}

void batch_norm(const BatchNormArgs& args) {
  const int64_t count = args.batch * args.channels * args.positions;
  launch("normalization", "batch_norm_f32", Grid{ceil_div(count, kThreads)}, Threads{kThreads}, 0, args);
}

void batch_norm_backward(const BatchNormBackwardArgs& args) {
  launch_rows("batch_norm_backward_f32", args.channels, args);
}

}  // namespace spark::cuda
