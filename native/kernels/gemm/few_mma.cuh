// few_mma.cuh: linear_mma_<dtype> and linear_mma_half_<dtype> of linear_mma.cu for up to 16 rows,
// sums[M,N] = a[M,K]·w[N,K]ᵀ (+ a2·b2ᵀ), where reading the weight once is all that costs time. One block per
// 16 rows of the weight, which stand on the left of the mma; spans of 128 along K go round its warps, whose
// sums are added in order. A lane loads what it multiplies, past shared memory, `a` in 16 bits or in
// f32, which it rounds: its eight neighbours along K are two pairs of each of two mma, and the order along K
// is the same on both sides. The order of sums depends on N and K alone. Reference:
// native/backend/cpu/gemm/product.cc
#pragma once

#include "kernels/gemm/blocks.h"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/pairs.cuh"

namespace spark {
namespace {

using linear_few_mma_block::kRows;
using linear_few_mma_block::kTokens;
constexpr int kMostWarps = linear_few_mma_block::kThreads / 32;
constexpr int kSteps = 4,
              kSpan = kSteps * 32;  // along K: of a warp at a time, its loads are under way at once

template <int kBlocks>
using Sums = float[kBlocks][4];

// The rows of a segment that stand on the right of the mma: packed lines, or f32 that is rounded here, whose
// rows are 8 · n numbers on multiples of 16 bytes.
struct Activations {
  const uint16_t* pairs;
  const float* floats;
  int64_t tokens, cols;
};

// Eight neighbouring numbers as they lie in memory.
struct RawEight {
  Eight low, high;  // `high` of f32 only

  // Zeros beyond the end of the row.
  __device__ void load(const Activations& a, int64_t token, int64_t k) {
    low = high = Eight{};
    if (a.floats) {
      if (k >= a.cols) return;
      const auto* from = reinterpret_cast<const Eight*>(a.floats + token * a.cols + k);
      low = from[0];
      high = from[1];
    } else if (k < padded_depth(a.cols)) {
      low = *reinterpret_cast<const Eight*>(a.pairs + token * padded_depth(a.cols) + k);
    }
  }
  template <typename Number>
  __device__ Eight pairs(const Activations& a) const {
    if (!a.floats) return low;
    EightFloats floats;
    memcpy(floats.at, this, sizeof floats.at);
    return floats.rounded<Number>();
  }
};

// sums[row, token] += w[row, k] · a[token, k] over the spans of this warp.
template <typename Codes, typename Number, int kBlocks>
__device__ void add_segment(const Weight& w, const Activations& a, int64_t row, Sums<kBlocks>& sums) {
  const int lane = threadIdx.x % 32, group = lane / 4;
  const int64_t depth = padded_depth(w.cols);
  const int64_t upper = min(row + group, w.rows - 1), lower = min(row + group + 8, w.rows - 1);
  constexpr int kAtOnce = sizeof(Codes) > 16 && kBlocks > 1 ? kSteps / 2 : kSteps;  // as registers allow
  for (int64_t span = threadIdx.x / 32 * kSpan; span < depth; span += blockDim.x / 32 * kSpan) {
#pragma unroll
    for (int first = 0; first < kSteps; first += kAtOnce) {
      Codes codes[kAtOnce][2];
      RawEight raw[kAtOnce][kBlocks];
#pragma unroll
      for (int step = 0; step < kAtOnce; ++step) {
        const int64_t k = span + (first + step) * 32 + lane % 4 * 8;
        codes[step][0].load(w, upper, k);
        codes[step][1].load(w, lower, k);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          raw[step][block].load(a, min(int64_t{block} * 8 + group, a.tokens - 1), k);
        }
      }
#pragma unroll
      for (int step = 0; step < kAtOnce; ++step) {
        const Eight top = codes[step][0].decode(), bottom = codes[step][1].decode();
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          const Eight x = raw[step][block].template pairs<Number>(a);
#pragma unroll
          for (int half = 0; half < 4; half += 2) {
            const uint32_t left[4] = {top.pairs[half], bottom.pairs[half], top.pairs[half + 1],
                                      bottom.pairs[half + 1]};
            mma_16x8x16<Number>(sums[block], left, x.pairs[half], x.pairs[half + 1]);
          }
        }
      }
    }
  }
}

// What each warp sums, for rows of `a` and the rows of the weight that the block has.
struct Partial {
  float sums[kMostWarps][kTokens][kRows];

  __device__ float sum(int token, int of_row) const {
    float sum = 0;
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) sum += sums[warp][token][of_row];
    return sum;
  }
};

template <typename Format, int kBlocks, typename Number>
__device__ void sum_up(const ProductMmaArgs& args, Partial& partial) {
  using Weights = Codes<Format, Number>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = int64_t{blockIdx.x} * kRows;
  Sums<kBlocks> sums = {};
  add_segment<Weights, Number, kBlocks>(args.w, {args.a, args.floats, args.rows, args.w.cols}, row, sums);
  const float tensor_scale = Weights::tensor_scale(args.w);
  for (int block = 0; block < kBlocks; ++block) {
    for (int i = 0; i < 4; ++i) {
      const int64_t at = min(row + lane / 4 + i / 2 * 8, args.cols - 1);
      sums[block][i] *= Weights::row_scale(args.w, at) * tensor_scale;
    }
  }
  const Weight second{DType::kBF16, args.cols, padded_depth(args.depth2), args.b2, nullptr, nullptr, 0,
                      false};
  add_segment<StoredPairs, Number, kBlocks>(second, {args.a2, nullptr, args.rows, second.cols}, row, sums);
  for (int block = 0; block < kBlocks; ++block) {
    for (int i = 0; i < 4; ++i) {
      partial.sums[warp][block * 8 + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = sums[block][i];
    }
  }
  __syncthreads();
}

template <typename Format, int kBlocks, typename Number = BF16>
__device__ void product(const ProductMmaArgs& args) {
  __shared__ Partial partial;
  sum_up<Format, kBlocks, Number>(args, partial);
  const int64_t row = int64_t{blockIdx.x} * kRows;
  for (int i = threadIdx.x; i < args.rows * kRows; i += blockDim.x) {
    const int token = i / kRows, of_row = i % kRows;
    if (row + of_row < args.cols) store(args.epilogue, token, row + of_row, partial.sum(token, of_row));
  }
}

// The same with results in rows that are rounded to NVFP4 in bf16, and in f32 unless `out` is null. A block
// of threads has a block of 16 elements of each row.
template <typename Format, int kBlocks>
__device__ void rounded_product(const ProductMmaArgs& args, const RoundedTarget& target) {
  static_assert(kRows == kNvfp4Block);
  __shared__ Partial partial;
  sum_up<Format, kBlocks, BF16>(args, partial);
  const Epilogue& to = args.epilogue;
  const int of_row = threadIdx.x % kRows;
  const int64_t column = int64_t{blockIdx.x} * kRows + of_row;
  for (int i = threadIdx.x; i - i % 32 < args.rows * kRows; i += blockDim.x) {
    const int token = i / kRows;
    const bool is_there = token < args.rows;
    const int64_t at = token * to.row_stride + column * to.col_stride;
    const float value = is_there ? finished(to, token, column, at, partial.sum(token, of_row)) : 0;
    if (is_there && to.out) to.out[at] = value;
    Nvfp4Store{target.rows, token, target.scale}.store_bf16(column, value, is_there);
  }
}

}  // namespace
}  // namespace spark

// linear_mma_8_<dtype> and linear_mma_16_<dtype>, for up to 8 and up to 16 rows.
#define SPARK_FEW_MMA(dtype, Format)                                                  \
  extern "C" __global__ void __launch_bounds__(spark::linear_few_mma_block::kThreads) \
      linear_mma_8_##dtype(spark::ProductMmaArgs args) {                              \
    spark::product<Format, 1>(args);                                                  \
  }                                                                                   \
  extern "C" __global__ void __launch_bounds__(spark::linear_few_mma_block::kThreads) \
      linear_mma_16_##dtype(spark::ProductMmaArgs args) {                             \
    spark::product<Format, 2>(args);                                                  \
  }
