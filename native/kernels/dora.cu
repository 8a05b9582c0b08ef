// dora.cu: the parts of a DoRA layer that are not matrix products: the row norms of V = W + s·B·A and their
// share of the gradient, merge and unmerge. The products are those of linear.cu.
// Norms are factored, ‖V‖² = ‖W‖² + 2s·(U∘B) + s²·(B·G∘B) with U = W·Aᵀ [O,R] and G = A·Aᵀ; no [O,I] is
// stored. Trap: a row that cancels has lost its digits in the factored form and is recomputed densely, in
// f64. Reference: native/backend/cpu/dora_norm.cc, dora_backward.cc, dora_merge.cc, weight.cc
#include "kernels/reduce.cuh"
#include "kernels/weight.cuh"

namespace spark {
namespace {

constexpr float kCancelled = 1e-2f;                    // as in dora_norm.cc
constexpr float kSmallest = 1e-30f, kLargest = 1e30f;  // squares underflow or overflow beyond

// What a gain divides by. A NaN stays one; fmaxf would hide it.
__device__ float clamped(float norm) { return norm < 1e-12f ? 1e-12f : norm; }

// One block per row.
template <typename Format>
__device__ void weight_norm2(const Weight& weight, float* out) {
  const int64_t row = blockIdx.x;
  float sum = 0;
  for (int64_t col = threadIdx.x; col < weight.cols; col += blockDim.x) {
    const float value = Format::element(weight, row, col);
    sum += value * value;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[row] = sum;
}

// ‖W[row, :] + s·B[row, :]·A‖², by all threads of the block.
template <typename Format>
__device__ double dense_norm2(const Weight& weight, const LowRank& low_rank, int64_t row) {
  double sum = 0;
  for (int64_t col = threadIdx.x; col < weight.cols; col += blockDim.x) {
    double delta = 0;
    for (int64_t r = 0; r < low_rank.rank; ++r) {
      delta += static_cast<double>(low_rank.b[row * low_rank.rank + r]) * low_rank.a[r * weight.cols + col];
    }
    const double value = Format::element(weight, row, col) + low_rank.scale * delta;
    sum += value * value;
  }
  return block_sum(sum);
}

// One block per row. u = W·Aᵀ and bg = B·G, both [O,R].
template <typename Format>
__device__ void dora_norm(const DoraNormArgs& args, const float* u, const float* bg) {
  const int64_t row = blockIdx.x, rank = args.low_rank.rank;
  const float scale = args.low_rank.scale;
  float cross = 0, square = 0;
  for (int64_t at = row * rank + threadIdx.x; at < (row + 1) * rank; at += blockDim.x) {
    cross += u[at] * args.low_rank.b[at];
    square += bg[at] * args.low_rank.b[at];
  }
  cross = block_sum(cross);
  square = block_sum(square);
  const float positive = args.weight_norm2[row] + scale * scale * square;
  const float norm2 = positive + 2 * scale * cross;
  // The same in every thread of the block, so that all of them take part in the dense sum.
  const bool exact = norm2 >= kCancelled * positive && positive >= kSmallest && positive <= kLargest;
  const float norm =
      exact ? sqrtf(norm2) : static_cast<float>(sqrt(dense_norm2<Format>(args.weight, args.low_rank, row)));
  if (threadIdx.x != 0) return;
  args.norm[row] = norm;
  args.gain[row] = args.magnitude[row] / clamped(norm);
}

__device__ float low_rank_element(const LowRank& low_rank, int64_t row, int64_t col, int64_t cols) {
  float sum = 0;
  for (int64_t r = 0; r < low_rank.rank; ++r) {
    sum = fmaf(low_rank.scale * low_rank.b[row * low_rank.rank + r], low_rank.a[r * cols + col], sum);
  }
  return sum;
}

// One thread per element.
template <typename Format>
__device__ void dora_merge(const DoraMergeArgs& args) {
  const int64_t cols = args.weight.cols;
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= args.weight.rows * cols) return;
  const int64_t row = at / cols, col = at % cols;
  const float value = Format::element(args.weight, row, col);
  args.merged[at] = args.gain[row] * (value + low_rank_element(args.low_rank, row, col, cols));
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(dtype, Format)                                                                         \
  extern "C" __global__ void weight_norm2_##dtype(spark::WeightNorm2Args args) {                            \
    spark::weight_norm2<Format>(args.weight, args.out);                                                     \
  }                                                                                                         \
  extern "C" __global__ void dora_norm_##dtype(spark::DoraNormArgs args, const float* u, const float* bg) { \
    spark::dora_norm<Format>(args, u, bg);                                                                  \
  }                                                                                                         \
  extern "C" __global__ void dora_merge_##dtype(spark::DoraMergeArgs args) {                                \
    spark::dora_merge<Format>(args);                                                                        \
  }
SPARK_FOR_EACH_WEIGHT(SPARK_DEFINE)

// One thread per element.
extern "C" __global__ void dora_unmerge_f32(spark::DoraUnmergeArgs args) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= args.rows * args.cols) return;
  const int64_t row = at / args.cols;
  const float delta = spark::low_rank_element(args.low_rank, row, at % args.cols, args.cols);
  args.restored[at] = args.merged[at] / args.gain[row] - delta;
}

// c[o] = magnitude · dmagnitude / norm², by which the exact gradient of the norm is weighted.
extern "C" __global__ void dora_backward_norm_f32(const float* gain, const float* dmagnitude,
                                                  const float* norm, int64_t rows, float* c) {
  const int64_t o = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (o < rows) c[o] = gain[o] * dmagnitude[o] / spark::clamped(norm[o]);
}
