// dora_norm.cu: row norms of V = W + s·B·A, ‖V‖² = ‖W‖² + 2s·rowsum((W·Aᵀ) ∘ B) + s²·rowsum((B·G) ∘ B) with
// G = A·Aᵀ [R,R]. dora_factor: A as the sum of two bf16 (16 bits), partial sums of G. dora_cross_<dtype>: the
// second term in one read of W, on tensor cores, for weights that bf16 holds; A·B is never formed. A block
// has 256 rows, 32 of each warp, and 256 columns; partial[columns / 256, O]. dora_norm_<dtype>: norm and
// gain. Trap: a row that cancels has lost its digits in this form and is recomputed densely, in f64.
// Reference: native/backend/cpu/dora/dora_norm.cc
#include "kernels/dora/blocks.h"
#include "kernels/dora/norm.cuh"
#include "kernels/gemm/pairs.cuh"
#include "kernels/gemm/product_args.h"
#include "kernels/reduce.cuh"

namespace spark {
namespace {

constexpr int kThreads = dora_norm_block::kThreads, kWarps = kThreads / kWarp;
static_assert(kThreads == dora_factor_block::kThreads && kThreads == dora_cross_block::kThreads);
static_assert(dora_norm_block::kRows == kWarps);

__device__ uint32_t rest_pair(float low, float high, uint32_t rounded) {
  return round_pair(low - BF16::decode(rounded & 0xFFFF), high - BF16::decode(rounded >> 16));
}

// --- dora_factor ---

using dora_factor_block::kSide;  // columns of A in a block, and rows and columns of G

// Rows [row, row + 64) of columns [col, col + 64), zeros outside.
__device__ void load(const float* a, int64_t row, int64_t rows, int64_t col, int64_t cols,
                     float (&tile)[kSide][kSide + 1]) {
  for (int i = threadIdx.x; i < kSide * kSide; i += kThreads) {
    const int64_t r = row + i / kSide, c = col + i % kSide;
    tile[i / kSide][i % kSide] = r < rows && c < cols ? a[r * cols + c] : 0.0f;
  }
}

// high + low = A [R, padded_depth(cols)].
__device__ void split(const float (&tile)[kSide][kSide + 1], int64_t row, int64_t rows, int64_t col,
                      int64_t depth, uint16_t* high, uint16_t* low) {
  for (int i = threadIdx.x * 2; i < kSide * kSide; i += kThreads * 2) {
    const int64_t r = row + i / kSide, c = col + i % kSide;
    if (r >= rows || c >= depth) continue;  // depth is even
    const float left = tile[i / kSide][i % kSide], right = tile[i / kSide][i % kSide + 1];
    const uint32_t rounded = round_pair(left, right);
    *reinterpret_cast<uint32_t*>(high + r * depth + c) = rounded;
    *reinterpret_cast<uint32_t*>(low + r * depth + c) = rest_pair(left, right, rounded);
  }
}

// --- dora_cross ---

constexpr int kRowBlocks = 2, kRows = kRowBlocks * 16;  // of a warp
static_assert(kWarps * kRows == dora_cross_block::kRows);
constexpr int kSpan = dora_cross_block::kCols;
constexpr int kSteps = 2;  // of 32 columns each, whose loads are under way

template <int kColBlocks>
using Sums = float[kRowBlocks][kColBlocks][4];

// sums[row, r] += (high + low)[r, k] · w[row, k] for the columns of this block and kColBlocks · 8 ranks.
template <typename Format, int kColBlocks>
__device__ void multiply(const DoraCrossArgs& args, int64_t row, int64_t start, int64_t rank,
                         Sums<kColBlocks>& sums) {
  const int lane = threadIdx.x % kWarp, group = lane / 4;
  const int64_t depth = padded_depth(args.weight.cols), end = min(depth, start + kSpan);
  for (int64_t span = start; span < end; span += kSteps * 32) {
    Codes<Format> codes[kSteps][kRowBlocks][2];
#pragma unroll
    for (int i = 0; i < kSteps * kRowBlocks * 2; ++i) {
      const int step = i / (kRowBlocks * 2), block = i / 2 % kRowBlocks;
      const int64_t at = min(row + block * 16 + i % 2 * 8 + group, args.weight.rows - 1);
      codes[step][block][i % 2].load(args.weight, at, span + step * 32 + lane % 4 * 8);
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int64_t k = span + step * 32 + lane % 4 * 8;
      if (k >= depth) continue;  // the same in all lanes: 32 divides depth
      Eight w[kRowBlocks][2];
#pragma unroll
      for (int i = 0; i < kRowBlocks * 2; ++i) w[i / 2][i % 2] = codes[step][i / 2][i % 2].decode();
#pragma unroll
      for (int n = 0; n < kColBlocks; ++n) {
        const int64_t at = min(rank + n * 8 + group, args.low_rank.rank - 1) * depth + k;
        const Eight parts[2] = {*reinterpret_cast<const Eight*>(args.high + at),
                                *reinterpret_cast<const Eight*>(args.low + at)};
#pragma unroll
        for (int i = 0; i < 2 * 2 * kRowBlocks; ++i) {
          const Eight& a = parts[i / 2 % 2];
          const auto& [top, bottom] = w[i / 4];
          const int half = i % 2 * 2;
          const uint32_t left[4] = {top.pairs[half], bottom.pairs[half], top.pairs[half + 1],
                                    bottom.pairs[half + 1]};
          mma_16x8x16(sums[i / 4][n], left, a.pairs[half], a.pairs[half + 1]);
        }
      }
    }
  }
}

// One block per 256 rows and kSpan columns.
template <typename Format, int kColBlocks>
__device__ void cross(const DoraCrossArgs& args) {
  const int64_t spans = (args.weight.cols + kSpan - 1) / kSpan, rank = args.low_rank.rank;
  const int64_t span = blockIdx.x % spans;
  const int64_t row = blockIdx.x / spans * kWarps * kRows + threadIdx.x / kWarp * kRows;
  const int lane = threadIdx.x % kWarp;
  float totals[kRowBlocks][2] = {};
  for (int64_t first = 0; first < rank; first += kColBlocks * 8) {
    Sums<kColBlocks> sums = {};
    multiply<Format, kColBlocks>(args, row, span * kSpan, first, sums);
#pragma unroll
    for (int i = 0; i < kRowBlocks * 2; ++i) {
      const int64_t o = row + i * 8 + lane / 4;
      float b[kColBlocks * 2];
#pragma unroll
      for (int j = 0; j < kColBlocks * 2; ++j) {
        const int64_t r = first + j / 2 * 8 + lane % 4 * 2 + j % 2;
        b[j] = o < args.weight.rows && r < rank ? args.low_rank.b[o * rank + r] : 0;
      }
#pragma unroll
      for (int j = 0; j < kColBlocks * 2; ++j) {
        const bool inside = first + j / 2 * 8 + lane % 4 * 2 + j % 2 < rank;
        totals[i / 2][i % 2] += inside ? sums[i / 2][j / 2][i % 2 * 2 + j % 2] * b[j] : 0;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRowBlocks * 2; ++i) {
    float total = totals[i / 2][i % 2];
    total += __shfl_xor_sync(0xFFFFFFFF, total, 1);
    total += __shfl_xor_sync(0xFFFFFFFF, total, 2);
    const int64_t o = row + i / 2 * 16 + i % 2 * 8 + lane / 4;
    if (lane % 4 != 0 || o >= args.weight.rows) continue;
    const float scale = Codes<Format>::row_scale(args.weight, o) * Codes<Format>::tensor_scale(args.weight);
    args.partial[span * args.weight.rows + o] = total * scale;
  }
}

// --- dora_norm ---

__device__ float warp_sum(float value) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xFFFFFFFF, value, lanes);
  return value;
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

// One warp per row: its norm; false where it must be recomputed.
__device__ bool factored_norm(const DoraNormArgs& args, const NormTerms& terms, int64_t row, float& norm) {
  const int64_t rank = args.low_rank.rank;
  const float* b = args.low_rank.b + row * rank;
  const int lane = threadIdx.x % kWarp;
  float cross = 0, square = 0;
  for (int64_t r = lane; r < rank; r += kWarp) {
    float sum = 0;
    for (int64_t j = 0; j < rank; ++j) sum = fmaf(b[j], terms.gram[j * rank + r], sum);
    square += sum * b[r];
    if (terms.product) cross += terms.product[row * rank + r] * b[r];
  }
  for (int64_t i = lane; i < terms.spans; i += kWarp) cross += terms.partial[i * args.weight.rows + row];
  cross = warp_sum(cross);
  square = warp_sum(square);
  const float scale = args.low_rank.scale, positive = args.weight_norm2[row] + scale * scale * square;
  const float norm2 = positive + 2 * scale * cross;
  norm = sqrtf(norm2);
  return norm2 >= kCancelledShare * positive && positive >= kSmallestSquare && positive <= kLargestSquare;
}

// A block has a row for each of its warps; all its threads recompute those that cancel.
template <typename Format>
__device__ void dora_norm(const DoraNormArgs& args, const NormTerms& terms) {
  __shared__ float norms[kWarps];
  __shared__ bool exact[kWarps];
  const int warp = threadIdx.x / kWarp;
  const int64_t first = int64_t{blockIdx.x} * kWarps, rows = min(int64_t{kWarps}, args.weight.rows - first);
  float norm = 0;
  const bool good = warp >= rows || factored_norm(args, terms, first + warp, norm);
  if (threadIdx.x % kWarp == 0) {
    norms[warp] = norm;
    exact[warp] = good;
  }
  __syncthreads();
  for (int i = 0; i < rows; ++i) {
    const float dense =
        exact[i] ? 0.0f
                 : static_cast<float>(sqrt(dense_norm2<Format>(args.weight, args.low_rank, first + i)));
    if (threadIdx.x != 0) continue;
    const float value = exact[i] ? norms[i] : dense;
    args.norm[first + i] = value;
    args.gain[first + i] = args.magnitude[first + i] / clamped(value);
  }
}

}  // namespace
}  // namespace spark

// One block per 64 columns of A and 64 x 64 of G; gram[columns / 64, R, R]. high and low are written by the
// blocks of the first column of G.
extern "C" __global__ void __launch_bounds__(spark::dora_norm_block::kThreads)
    dora_factor_f32(const float* a, int64_t rank, int64_t cols, uint16_t* high, uint16_t* low, float* gram) {
  using namespace spark;
  __shared__ float left[kSide][kSide + 1], right[kSide][kSide + 1];
  const int64_t tiles = (rank + kSide - 1) / kSide;
  const int64_t span = blockIdx.x / (tiles * tiles), col = span * kSide;
  const int64_t row = blockIdx.x / tiles % tiles * kSide, other = blockIdx.x % tiles * kSide;
  load(a, row, rank, col, cols, left);
  load(a, other, rank, col, cols, right);
  __syncthreads();
  if (other == 0) split(left, row, rank, col, padded_depth(cols), high, low);
  for (int i = threadIdx.x; i < kSide * kSide; i += kThreads) {
    if (row + i / kSide >= rank || other + i % kSide >= rank) continue;
    float sum = 0;
    for (int k = 0; k < kSide; ++k) sum = fmaf(left[i / kSide][k], right[i % kSide][k], sum);
    gram[(span * rank + row + i / kSide) * rank + other + i % kSide] = sum;
  }
}

// For up to 16 ranks, and for 64 at a time.
#define SPARK_DEFINE_CROSS(dtype, Format)                                        \
  extern "C" __global__ void __launch_bounds__(spark::dora_norm_block::kThreads) \
      dora_cross_16_##dtype(spark::DoraCrossArgs args) {                         \
    spark::cross<Format, 2>(args);                                               \
  }                                                                              \
  extern "C" __global__ void __launch_bounds__(spark::dora_norm_block::kThreads) \
      dora_cross_64_##dtype(spark::DoraCrossArgs args) {                         \
    spark::cross<Format, 8>(args);                                               \
  }
SPARK_DEFINE_CROSS(bf16, spark::Plain<spark::BF16>)
SPARK_DEFINE_CROSS(f8_e4m3, spark::RowScaledE4M3)
SPARK_DEFINE_CROSS(nvfp4, spark::Nvfp4)
SPARK_DEFINE_CROSS(i8, spark::RowScaledI8)

#define SPARK_DEFINE_NORM(dtype, Format)                                                           \
  extern "C" __global__ void dora_norm_##dtype(spark::DoraNormArgs args, spark::NormTerms terms) { \
    spark::dora_norm<Format>(args, terms);                                                         \
  }
SPARK_FOR_EACH_WEIGHT(SPARK_DEFINE_NORM)
