// product_epilogue.cu: the second segment and the epilogue of parts[P,M,N], which another library or the
// stripes of linear_batch_mma.cu made: factors[m] · s · Σ_p parts[p, m, n], in order, s being the tensor
// scale of the weight, + Σ_{r < R} a2[m, r] · b2[n, r], of packed bf16 (or f16: …_half), then Epilogue.
// …_rounded stores results as rows in codes. One block per 16 x 128 elements; a thread has one column and
// every second row. Reference: native/backend/cpu/gemm/product.cc
#include "kernels/gemm/blocks.h"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/pairs.cuh"

namespace spark {
namespace {

using product_epilogue_block::kCols;
using product_epilogue_block::kRows;
constexpr int kSide = product_epilogue_block::kThreads / kCols, kSums = kRows / kSide;  // of a thread

template <typename Number>
__device__ float dot(const Eight& a, const Eight& b, float sum) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum = fmaf(Number::decode(a.pairs[i] & 0xFFFF), Number::decode(b.pairs[i] & 0xFFFF), sum);
    sum = fmaf(Number::decode(a.pairs[i] >> 16), Number::decode(b.pairs[i] >> 16), sum);
  }
  return sum;
}

template <typename Number, typename Store>
__device__ void finish(const ProductMmaArgs& args, const float* parts, int64_t count, const float* factors,
                       const Store& store) {
  const int64_t row_tiles = (args.rows + kRows - 1) / kRows, depth = padded_depth(args.depth2) / 8;
  const int64_t n = blockIdx.x / row_tiles * kCols + threadIdx.x % kCols;
  const int64_t top = blockIdx.x % row_tiles * kRows + threadIdx.x / kCols;
  if (n >= args.cols) return;
  float sums[kSums] = {}, values[kSums] = {};
  for (int64_t part = 0; part < count; ++part) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int64_t m = min(top + i * kSide, args.rows - 1);
      sums[i] += parts[(part * args.rows + m) * args.cols + n];
    }
  }
  if (factors) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      sums[i] *= factors[min(top + i * kSide, args.rows - 1)] * args.w.tensor_scale;
    }
  }
  const auto* b = reinterpret_cast<const Eight*>(args.b2) + n * depth;
  for (int64_t r = 0; r < depth; ++r) {
    const Eight right = b[r];
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int64_t m = min(top + i * kSide, args.rows - 1);
      values[i] = dot<Number>(reinterpret_cast<const Eight*>(args.a2)[m * depth + r], right, values[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int64_t m = top + i * kSide;
    if (m < args.rows) store(m, n, sums[i] + values[i]);
  }
}

template <typename Number>
__device__ void finish(const ProductMmaArgs& args, const float* parts, int64_t count, const float* factors) {
  finish<Number>(args, parts, count, factors,
                 [&](int64_t m, int64_t n, float sum) { store(args.epilogue, m, n, sum); });
}

}  // namespace
}  // namespace spark

extern "C" __global__ void __launch_bounds__(spark::product_epilogue_block::kThreads)
    product_epilogue(spark::ProductMmaArgs args, const float* parts, int64_t count, const float* factors) {
  spark::finish<spark::BF16>(args, parts, count, factors);
}
extern "C" __global__ void __launch_bounds__(spark::product_epilogue_block::kThreads)
    product_epilogue_half(spark::ProductMmaArgs args, const float* parts, int64_t count,
                          const float* factors) {
  spark::finish<spark::F16>(args, parts, count, factors);
}
extern "C" __global__ void __launch_bounds__(spark::product_epilogue_block::kThreads)
    product_epilogue_rounded(spark::ProductMmaArgs args, const float* parts, int64_t count,
                             const float* factors, spark::RoundedTarget target) {
  spark::finish<spark::BF16>(args, parts, count, factors, [&](int64_t m, int64_t n, float sum) {
    spark::store_rounded(args.epilogue, target, m, n, sum);
  });
}
