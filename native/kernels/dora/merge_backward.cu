// merge_backward.cu: the gradient of merged = gain ∘ V, V = W + s·B·A, that is not a matrix product.
// Reference: native/backend/cpu/dora/dora_merge.cc
#include "kernels/gemm/weight.cuh"
#include "kernels/reduce.cuh"

namespace spark {
namespace {

// One block per row: dmagnitude[o] = Σ_i dmerged V / norm and dv[o, :] = gain · (dmerged − radial · V).
template <typename Format>
__device__ void merge_gradient(const DoraMergeBackwardArgs& args) {
  const int64_t row = blockIdx.x, cols = args.weight.cols, rank = args.low_rank.rank;
  const float *b = args.low_rank.b + row * rank, *dmerged = args.dmerged + row * cols;
  float* dv = args.dv + row * cols;
  double sum = 0;
  for (int64_t col = threadIdx.x; col < cols; col += blockDim.x) {
    float delta = 0;
    for (int64_t r = 0; r < rank; ++r) delta += b[r] * args.low_rank.a[r * cols + col];
    dv[col] = Format::element(args.weight, row, col) + args.low_rank.scale * delta;
    sum += static_cast<double>(dmerged[col]) * dv[col];
  }
  sum = block_sum(sum);
  const double norm = args.norm[row] < kSmallestNorm ? kSmallestNorm : args.norm[row];
  if (threadIdx.x == 0) args.dmagnitude[row] = static_cast<float>(sum / norm);
  const float radial = args.exact_norm ? static_cast<float>(sum / (norm * norm)) : 0;
  for (int64_t col = threadIdx.x; col < cols; col += blockDim.x) {
    dv[col] = args.gain[row] * (dmerged[col] - radial * dv[col]);
  }
}

}  // namespace
}  // namespace spark

#define SPARK_WEIGHT(name, Format)                                                      \
  extern "C" __global__ void merge_gradient_##name(spark::DoraMergeBackwardArgs args) { \
    spark::merge_gradient<Format>(args);                                                \
  }
SPARK_FOR_EACH_WEIGHT(SPARK_WEIGHT)

// values[i] = factor · values[i], i < count.
extern "C" __global__ void merge_scale_f32(float factor, int64_t count, float* values) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= factor;
}
