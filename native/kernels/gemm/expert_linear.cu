// expert_linear.cu: y[n, j, o] = Σ_i x[n(, j), i] W[e, o, i] + bias[e, o] with e = choice[n, j]. expert_sort
// sorts the choices by expert, into groups of up to 8; a block of expert_linear_<dtype> has such a group and
// 32 outputs. Its warps take chunks of 256 along K by turns: a lane has an output, its row of the weight
// comes through shared memory. Trap: a sum is formed as in linear.cu, in chunks of 256, whatever the group.
// Reference: native/backend/cpu/gemm/expert_linear.cc
#include "kernels/gemm/blocks.h"
#include "kernels/gemm/product_args.h"
#include "kernels/gemm/weight.cuh"

namespace spark {
namespace {

using namespace expert_linear_block;
constexpr int kWarps = kThreads / 32;
constexpr int kChunk = linear_block::kChunk;
constexpr int kDepth = 64;  // of a tile along K

struct WarpTile {
  float w[kCols][kDepth + 1];  // one more: the rows lie in different banks
  alignas(16) float x[kDepth][kRows];
};

// Whose row of `choice` a thread counts; one out of range is nobody's.
__device__ int expert_of(int64_t choice, int64_t experts) {
  return static_cast<int>(choice < 0 || choice >= experts ? experts : choice);
}

// Calls visit(i) for the choices of this thread's expert, in their order.
template <typename Visit>
__device__ void for_each_own(const int64_t* choice, int64_t count, int64_t experts, Visit visit) {
  __shared__ int32_t staged[kSortThreads];
  const int own = threadIdx.x;
  for (int64_t first = 0; first < count; first += kSortThreads) {
    const int length = static_cast<int>(min(count - first, int64_t{kSortThreads}));
    if (own < length) staged[own] = expert_of(choice[first + own], experts);
    __syncthreads();
    for (int i = 0; i < length; ++i) {
      if (staged[i] == own) visit(first + i);
    }
    __syncthreads();
  }
}

// The sum of `value` over the threads in front of this one.
__device__ int sum_before(int value) {
  __shared__ int sums[kSortThreads];
  const int own = threadIdx.x;
  sums[own] = value;
  __syncthreads();
  for (int step = 1; step < kSortThreads; step *= 2) {
    const int before = own >= step ? sums[own - step] : 0;
    __syncthreads();
    sums[own] += before;
    __syncthreads();
  }
  const int result = sums[own] - value;
  __syncthreads();  // the sums may be used again
  return result;
}

__device__ void sort_choices(const int64_t* choice, int64_t count, int64_t experts, const ExpertGroups& to) {
  int rows = 0;
  for_each_own(choice, count, experts, [&](int64_t) { ++rows; });
  const int groups = (rows + kRows - 1) / kRows;
  const int start = sum_before(rows), first = sum_before(groups);
  for (int group = 0; group < groups; ++group) {
    const int at = group * kRows;
    to.groups[first + group] = {static_cast<int32_t>(threadIdx.x), start + at, min(rows - at, kRows)};
  }
  if (threadIdx.x == kSortThreads - 1) *to.count = first + groups;
  int next = start;
  for_each_own(choice, count, experts, [&](int64_t i) { to.order[next++] = static_cast<int32_t>(i); });
}

// The tile of this warp at [col, k]; rows of a group that it lacks are zeros.
template <typename Format>
__device__ void load(const ExpertLinearArgs& args, const int64_t (&rows)[kRows], int64_t col, int64_t cols,
                     int64_t k, WarpTile& tile) {
  constexpr int kEights = kDepth / 8;
  const int lane = threadIdx.x % 32;
  const int64_t depth = args.weight.cols;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int row = (lane + i * 32) / kEights, at = lane % kEights * 8;
    float values[8];
    Format::eight(args.weight, col + min(int64_t{row}, cols - 1), min(k + at, depth), values);
#pragma unroll
    for (int j = 0; j < 8; ++j) tile.w[row][at + j] = values[j];
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    for (int at = lane; at < kDepth; at += 32) {
      const bool inside = rows[row] >= 0 && k + at < depth;
      tile.x[at][row] = inside ? args.x[rows[row] * depth + k + at] : 0.0f;
    }
  }
}

// sums[row] = the chunk at `chunk` of x · W for the output of this lane.
template <typename Format>
__device__ void add_chunk(const ExpertLinearArgs& args, const int64_t (&rows)[kRows], int64_t col,
                          int64_t cols, int64_t chunk, WarpTile& tile, float (&sums)[kRows]) {
  const int64_t end = min(args.weight.cols, chunk + kChunk);
  for (int row = 0; row < kRows; ++row) sums[row] = 0;
  for (int64_t k = chunk; k < chunk + kChunk; k += kDepth) {
    __syncthreads();  // the last tile has been used
    if (k < end) load<Format>(args, rows, col, cols, k, tile);
    __syncthreads();
    const int count = static_cast<int>(max(min(end - k, int64_t{kDepth}), int64_t{0}));
    for (int j = 0; j < count; ++j) {
      const float w = tile.w[threadIdx.x % 32][j];
#pragma unroll
      for (int row = 0; row < kRows; ++row) sums[row] = fmaf(tile.x[j][row], w, sums[row]);
    }
  }
}

template <typename Format>
__device__ void expert_linear(const ExpertLinearArgs& args, const ExpertGroups& sorted, int64_t max_groups) {
  __shared__ WarpTile tiles[kWarps];
  __shared__ float parts[kWarps][kRows][kCols];
  const int64_t index = blockIdx.x % max_groups, out = args.weight.rows / args.experts;
  if (index >= *sorted.count) return;
  const ExpertGroup group = sorted.groups[index];
  const int64_t o = blockIdx.x / max_groups * kCols, cols = min(out - o, int64_t{kCols});
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool exists = group.expert < args.experts;
  const int64_t col = (exists ? group.expert : 0) * out + o;  // of the rows of the weight
  int64_t rows[kRows];                                        // of x
  for (int row = 0; row < kRows; ++row) {
    const int64_t choice = row < group.rows ? sorted.order[group.start + row] : -1;
    rows[row] = choice < 0 || args.per_choice ? choice : choice / args.choices;
  }
  float totals[kRows / kWarps] = {};  // of rows warp, warp + kWarps and so on
  for (int64_t chunk = 0; chunk < args.weight.cols; chunk += kWarps * kChunk) {
    float sums[kRows];
    add_chunk<Format>(args, rows, col, cols, chunk + warp * kChunk, tiles[warp], sums);
    for (int row = 0; row < kRows; ++row) parts[warp][row][lane] = sums[row];
    __syncthreads();
    for (int i = 0; i < kRows / kWarps; ++i) {
      for (int part = 0; part < kWarps; ++part) totals[i] += parts[part][warp + i * kWarps][lane];
    }
  }
  for (int i = 0; i < kRows / kWarps; ++i) {
    const int row = warp + i * kWarps;
    if (row >= group.rows || lane >= cols) continue;
    const float sum = args.bias ? totals[i] + args.bias[col + lane] : totals[i];
    args.y[sorted.order[group.start + row] * out + o + lane] = exists ? sum : nanf("");
  }
}

}  // namespace
}  // namespace spark

extern "C" __global__ void __launch_bounds__(spark::expert_linear_block::kSortThreads)
    expert_sort(const int64_t* choice, int64_t count, int64_t experts, spark::ExpertGroups to) {
  spark::sort_choices(choice, count, experts, to);
}

#define SPARK_DEFINE(dtype, Format)                                                                         \
  extern "C" __global__ void __launch_bounds__(spark::expert_linear_block::kThreads)                        \
      expert_linear_##dtype(spark::ExpertLinearArgs args, spark::ExpertGroups sorted, int64_t max_groups) { \
    spark::expert_linear<Format>(args, sorted, max_groups);                                                 \
  }
SPARK_FOR_EACH_WEIGHT(SPARK_DEFINE)

#define SPARK_DEFINE_BLOCKS(dtype, enumerator, Format) SPARK_DEFINE(dtype, spark::InBlocks<Format>)
SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_DEFINE_BLOCKS)
