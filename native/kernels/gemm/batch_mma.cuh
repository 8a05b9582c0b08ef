// batch_mma.cuh: linear_mma_<dtype> and linear_mma_half_<dtype> of linear_mma.cu for 17 to 256 rows, such as
// those of batched decoding, sums[M,N] = a[M,K]·w[N,K]ᵀ, where tiles of 128 x 128 are too few for a GPU. One
// block per 64 rows of the weight, which stand on the left of the mma, 32 or 64 rows of `a` and stripe of K.
// A warp has 16 rows of the weight and half of each span of K: it loads its codes of the next span while it
// multiplies this one, past shared memory, and every warp reads `a` from there. As in few_mma.cuh a lane's
// eight neighbours along K are two pairs of each of two mma. Stripes, and the order of sums, depend on N and
// K alone. Reference: native/backend/cpu/gemm/product.cc
#pragma once

#include "kernels/gemm/blocks.h"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/pairs.cuh"

namespace spark {
namespace {

using linear_batch_mma_block::kCols;
using linear_batch_mma_block::kSpan;
using linear_batch_mma_block::kThreads;
constexpr int kStages = 3;
constexpr int kWarpCols = 16, kColGroups = kCols / kWarpCols;
constexpr int kHalves = kThreads / 32 / kColGroups;  // parts of a span that warps share out
constexpr int kSteps = kSpan / 32 / kHalves;         // of 32 along K: of a warp in a span

template <int kRows>
using Sums = float[kRows / 8][4];

// Rows of `a` in a span: eight lanes that read 16 bytes each of two rows meet all banks.
template <int kRows>
using Activations = uint16_t[kSpan / 32][kRows][32];

template <int kRows>
union alignas(16) Shared {
  Activations<kRows> stages[kStages];
  float sums[kHalves][kRows][kCols + 4];  // whose lanes store to different banks
};

// Starts copying rows [row, row + kRows) of a span. Rows past the end repeat the last one.
template <int kRows>
__device__ void start_copies(Activations<kRows>& to, const ProductMmaArgs& args, int64_t row, int span) {
  constexpr int kAtOnce = kThreads / 4 / kRows;  // steps
  const int64_t depth = padded_depth(args.depth);
  const int m = threadIdx.x / 4 % kRows, eight = threadIdx.x % 4;
  const uint16_t* line = args.a + min(row + m, args.rows - 1) * depth;
#pragma unroll
  for (int i = 0; i < kSpan / 32 / kAtOnce; ++i) {
    const int step = threadIdx.x / 4 / kRows + i * kAtOnce;
    const int64_t k = int64_t{span} * kSpan + step * 32 + eight * 8;
    copy_async(to[step][m] + eight * 8, k < depth ? line + k : line, k < depth);
  }
}

// The codes of a step of 32 along K that this lane multiplies, of its rows `upper` and `upper` + 8 of the
// weight.
template <typename Codes>
__device__ void load_codes(Codes (&codes)[2], const Weight& w, int upper, int step) {
  const int k = step * 32 + threadIdx.x % 4 * 8, last = static_cast<int>(w.rows) - 1;
  codes[0].load(w, min(upper, last), k);
  codes[1].load(w, min(upper + 8, last), k);
}

// sums += w · aᵀ over a step of 32 along K.
template <typename Number, int kRows>
__device__ void multiply(const Eight& top, const Eight& bottom, const uint16_t (&a)[kRows][32],
                         Sums<kRows>& sums) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int block = 0; block < kRows / 8; ++block) {
    const Eight x = *reinterpret_cast<const Eight*>(a[block * 8 + lane / 4] + lane % 4 * 8);
#pragma unroll
    for (int pair = 0; pair < 4; pair += 2) {
      const uint32_t left[4] = {top.pairs[pair], bottom.pairs[pair], top.pairs[pair + 1],
                                bottom.pairs[pair + 1]};
      mma_16x8x16<Number>(sums[block], left, x.pairs[pair], x.pairs[pair + 1]);
    }
  }
}

// The sums of this warp over spans [first, end).
template <typename Codes, typename Number, int kRows>
__device__ void add_spans(Shared<kRows>& shared, const ProductMmaArgs& args, int64_t row, int64_t col,
                          int first, int end, Sums<kRows>& sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = warp / kColGroups;
  const int upper = static_cast<int>(col) + warp % kColGroups * kWarpCols + lane / 4;
  const auto start = [&](int span) {
    if (span < end) start_copies<kRows>(shared.stages[span % kStages], args, row, span);
    copy_commit();
  };
  for (int stage = 0; stage < kStages - 1; ++stage) start(first + stage);
  Codes codes[kSteps][2];
  const auto load = [&](int span, int step) {
    if (span < end) load_codes(codes[step], args.w, upper, (span * kHalves + half) * kSteps + step);
  };
#pragma unroll
  for (int step = 0; step < kSteps; ++step) load(first, step);
#pragma unroll 1
  for (int span = first; span < end; ++span) {
    copy_wait<kStages - 2>();
    __syncthreads();  // the span is there for all, and all are done with the one before
    start(span + kStages - 1);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const Eight top = codes[step][0].decode(), bottom = codes[step][1].decode();
      load(span + 1, step);
      multiply<Number, kRows>(top, bottom, shared.stages[span % kStages][half * kSteps + step], sums);
    }
  }
  copy_wait<0>();
  __syncthreads();  // the stages may be used again
}

template <typename Format, int kRows, typename Number = BF16>
__device__ void product(const ProductMmaArgs& args, const Stripes& stripes) {
  using Weights = Codes<Format, Number>;
  __shared__ Shared<kRows> shared;
  const auto row_tiles = static_cast<unsigned>((args.rows + kRows - 1) / kRows);
  const auto col_tiles = static_cast<unsigned>((args.cols + kCols - 1) / kCols);
  const unsigned tile = blockIdx.x / row_tiles, stripe = tile / col_tiles;
  const int64_t row = int64_t{blockIdx.x % row_tiles} * kRows, col = int64_t{tile % col_tiles} * kCols;
  const int64_t spans = (args.depth + kSpan - 1) / kSpan;
  Sums<kRows> sums = {};
  add_spans<Weights, Number, kRows>(shared, args, row, col, static_cast<int>(spans * stripe / stripes.count),
                                    static_cast<int>(spans * (stripe + 1) / stripes.count), sums);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < kRows / 8 * 4; ++i) {
    const int m = i / 4 * 8 + lane % 4 * 2 + i % 2;
    const int n = warp % kColGroups * kWarpCols + lane / 4 + i % 4 / 2 * 8;
    shared.sums[warp / kColGroups][m][n] = sums[i / 4][i % 4];
  }
  __syncthreads();
  const int64_t n = col + threadIdx.x % kCols;
  if (n >= args.cols) return;
  const float factor = Weights::row_scale(args.w, n) * Weights::tensor_scale(args.w);
#pragma unroll 1
  for (int m = threadIdx.x / kCols; m < min(int64_t{kRows}, args.rows - row); m += kThreads / kCols) {
    float sum = 0;
    for (int half = 0; half < kHalves; ++half) sum += shared.sums[half][m][threadIdx.x % kCols];
    if (stripes.parts) {
      stripes.parts[(stripe * args.rows + row + m) * args.cols + n] = sum * factor;
    } else {
      store(args.epilogue, row + m, n, sum * factor);
    }
  }
}

}  // namespace
}  // namespace spark

#define SPARK_BATCH_MMA_OF(name, kRows, Format, Number)                                    \
  extern "C" __global__ void __launch_bounds__(spark::linear_batch_mma_block::kThreads, 2) \
      name(spark::ProductMmaArgs args, spark::Stripes stripes) {                           \
    spark::product<Format, kRows, Number>(args, stripes);                                  \
  }

// linear_mma_32_<dtype> and linear_mma_64_<dtype>, with tiles of as many rows.
#define SPARK_BATCH_MMA(dtype, Format)                               \
  SPARK_BATCH_MMA_OF(linear_mma_32_##dtype, 32, Format, spark::BF16) \
  SPARK_BATCH_MMA_OF(linear_mma_64_##dtype, 64, Format, spark::BF16)
