// linear_integer_few_mma.cu: linear_integer_mma.cu for up to 16 rows, where reading the weight once is all
// that costs time. One block per 16 rows of the weight, which stand on the left of the mma; spans of 256
// along K go round its warps. A lane loads the bytes it multiplies, past shared memory: its 16 neighbours
// along K are four registers of two mma, and the order along K is the same on both sides. The sums of lines
// that zero points are multiplied with are products with ones. Reference:
// native/backend/cpu/gemm/linear_integer.cc
#include "kernels/gemm/blocks.h"
#include "kernels/gemm/bytes.cuh"
#include "kernels/gemm/integer_result.cuh"
#include "kernels/gemm/mma.cuh"

namespace spark {
namespace {

using linear_few_mma_block::kRows;
using linear_few_mma_block::kThreads;
using linear_few_mma_block::kTokens;
constexpr int kSteps = 4,
              kSpan = kSteps * 64;  // along K: of a warp at a time, its loads are under way at once
constexpr uint32_t kOnes = 0x01010101;

// What this warp multiplied: bytes, those of w by ones and ones by those of x. A lane has the sums of its
// lines in the places of their product.
template <int kBlocks>
struct Sums {
  uint32_t products[kBlocks][4], x[kBlocks][4], w[4];
};

template <int kBlocks, typename X, typename W>
__device__ void add_spans(const LinearIntegerArgs& args, int64_t row, Sums<kBlocks>& sums) {
  const int lane = threadIdx.x % 32, group = lane / 4;
  const auto line = [&](const void* data, int64_t index, int64_t lines) {
    return static_cast<const uint8_t*>(data) + min(index, lines - 1) * args.cols;
  };
  const uint8_t* upper = line(args.w, row + group, args.rows);
  const uint8_t* lower = line(args.w, row + group + 8, args.rows);
  for (int64_t span = threadIdx.x / 32 * kSpan; span < args.cols; span += blockDim.x / 32 * kSpan) {
    Bytes<16> w[kSteps][2], x[kSteps][kBlocks];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int64_t k = span + step * 64 + lane % 4 * 16;
      w[step][0].load(upper + k, args.cols - k);
      w[step][1].load(lower + k, args.cols - k);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        x[step][block].load(line(args.x, block * 8 + group, args.tokens) + k, args.cols - k);
      }
    }
    const uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
#pragma unroll
    for (int i = 0; i < kSteps * 2; ++i) {
      const int step = i / 2, half = i % 2 * 2;
      const auto& [top, bottom] = w[step];
      const uint32_t left[4] = {top.words[half], bottom.words[half], top.words[half + 1],
                                bottom.words[half + 1]};
      if (args.x_zero) mma_16x8x32<W, uint8_t>(sums.w, left, kOnes, kOnes);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const uint32_t(&right)[4] = x[step][block].words;
        mma_16x8x32<W, X>(sums.products[block], left, right[half], right[half + 1]);
        if (args.w_zero) mma_16x8x32<uint8_t, X>(sums.x[block], ones, right[half], right[half + 1]);
      }
    }
  }
}

template <int kBlocks, typename X, typename W>
__device__ void product(const LinearIntegerArgs& args) {
  __shared__ uint32_t partial[kThreads / 32][kTokens][kRows + 4];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = int64_t{blockIdx.x} * kRows;
  const auto x_zero = [&](int64_t t) {
    return uint32_t(args.x_zero ? args.x_zero[min(t, args.tokens - 1)] : 0);
  };
  const auto w_zero = [&](int64_t o) {
    return uint32_t(args.w_zero ? args.w_zero[min(o, args.rows - 1)] : 0);
  };
  Sums<kBlocks> sums = {};
  add_spans<kBlocks, X, W>(args, row, sums);
  for (int block = 0; block < kBlocks; ++block) {
    for (int i = 0; i < 4; ++i) {
      const int token = block * 8 + lane % 4 * 2 + i % 2, of_row = lane / 4 + i / 2 * 8;
      partial[warp][token][of_row] =
          sums.products[block][i] - x_zero(token) * sums.w[i] - w_zero(row + of_row) * sums.x[block][i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < args.tokens * kRows; i += blockDim.x) {
    const int token = i / kRows, of_row = i % kRows;
    if (row + of_row >= args.rows) continue;
    uint32_t sum = static_cast<uint32_t>(args.cols) * x_zero(token) * w_zero(row + of_row);
    for (int from = 0; from < static_cast<int>(blockDim.x) / 32; ++from) sum += partial[from][token][of_row];
    store_integer(args.result, args.bias, row + of_row, token * args.rows + row + of_row, sum);
  }
}

}  // namespace
}  // namespace spark

// linear_integer_mma_8_<type of x>_<type of w> and linear_integer_mma_16_…, for up to 8 and up to 16 rows.
#define SPARK_DEFINE(tokens, x, X, w, W)                                              \
  extern "C" __global__ void __launch_bounds__(spark::linear_few_mma_block::kThreads) \
      linear_integer_mma_##tokens##_##x##_##w(spark::LinearIntegerArgs args) {        \
    spark::product<tokens / 8, X, W>(args);                                           \
  }
#define SPARK_DEFINE_TYPES(tokens)               \
  SPARK_DEFINE(tokens, u8, uint8_t, u8, uint8_t) \
  SPARK_DEFINE(tokens, u8, uint8_t, i8, int8_t)  \
  SPARK_DEFINE(tokens, i8, int8_t, u8, uint8_t)  \
  SPARK_DEFINE(tokens, i8, int8_t, i8, int8_t)
SPARK_DEFINE_TYPES(8)
SPARK_DEFINE_TYPES(16)
