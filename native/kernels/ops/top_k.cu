// top_k.cu: values and indices[outer, k, inner] of the first k elements of x[outer, size, inner] along the
// middle axis, in their order. Each is the first element that comes after the one before it, found by a scan:
// of a thread (top_k_each_*) where rows are short or many, else of a block (top_k_*). A launch gives those
// from `begin` to `end`. Reference: native/backend/cpu/ops/top_k.cc; the order is shared
// (backend/top_k_order.h)
#include "backend/top_k_order.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/strided.cuh"

namespace spark {
namespace {

using top_k_block::kThreads;

// An element and where it is along the axis; -1: none.
template <typename V>
struct Candidate {
  V value;
  int64_t index;
};

template <typename V>
__device__ bool comes_before(const TopKArgs& args, const Candidate<V>& a, const Candidate<V>& b) {
  return comes_before(args, a.value, a.index, b.value, b.index);
}

// The earlier one of two of which each may be none.
template <typename V>
__device__ Candidate<V> earlier(const TopKArgs& args, const Candidate<V>& a, const Candidate<V>& b) {
  return b.index < 0 || (a.index >= 0 && comes_before(args, a, b)) ? a : b;
}

// Elements [outer, :, column] of x.
struct Row {
  int64_t outer, column;
};

// Row `index` of fewer than 2^31. A 64-bit division is a call, around which registers are spilled.
__device__ Row row_of_block(const TopKArgs& args, unsigned index) {
  const auto inner = static_cast<unsigned>(min(args.inner, int64_t{1} << 31));
  return {index / inner, index % inner};
}

// The first of the elements begin, begin + step, … of a row that comes after `last`, if that is one.
template <typename V>
__device__ Candidate<V> following(const TopKArgs& args, const Row& row, const Candidate<V>& last,
                                  int64_t begin, int64_t step) {
  const int64_t start = row.outer * args.size * args.inner + row.column;
  Candidate<V> first{V{0}, -1};
  for (int64_t i = begin; i < args.size; i += step) {
    const Candidate<V> candidate{load_element<V>(args.dtype, args.x, start + i * args.inner), i};
    if (last.index < 0 || comes_before(args, last, candidate)) first = earlier(args, first, candidate);
  }
  return first;
}

// What an earlier launch gave last.
template <typename V>
__device__ Candidate<V> given(const TopKArgs& args, const Row& row, int64_t begin) {
  if (begin == 0) return {V{0}, -1};
  const int64_t index = args.indices[(row.outer * args.k + begin - 1) * args.inner + row.column];
  const int64_t at = (row.outer * args.size + index) * args.inner + row.column;
  return {load_element<V>(args.dtype, args.x, at), index};
}

template <typename V>
__device__ void give(const TopKArgs& args, const Row& row, int64_t n, const Candidate<V>& candidate) {
  const int64_t at = (row.outer * args.k + n) * args.inner + row.column;
  args.indices[at] = candidate.index;
  if (args.values) store_element(args.dtype, candidate.value, args.values, at);
}

template <typename V>
__device__ void top_k_each(const TopKArgs& args, int64_t begin, int64_t end) {
  const int64_t index = thread_index();
  if (index >= args.outer * args.inner) return;
  const Row row{index / args.inner, index % args.inner};
  Candidate<V> last = given<V>(args, row, begin);
  for (int64_t n = begin; n < end; ++n) {
    last = following(args, row, last, 0, 1);
    give(args, row, n, last);
  }
}

// The earliest of what the threads of the block have, in every thread.
template <typename V>
__device__ Candidate<V> earliest(const TopKArgs& args, const Candidate<V>& own) {
  __shared__ Candidate<V> candidates[kThreads];
  __syncthreads();  // the result of an earlier call may still be read
  candidates[threadIdx.x] = own;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    const int other = static_cast<int>(threadIdx.x) + half;
    if (other < 2 * half) candidates[threadIdx.x] = earlier(args, candidates[threadIdx.x], candidates[other]);
  }
  __syncthreads();
  return candidates[0];
}

template <typename V>
__device__ void top_k(const TopKArgs& args, int64_t begin, int64_t end) {
  const Row row = row_of_block(args, blockIdx.x);
  Candidate<V> last = given<V>(args, row, begin);
  for (int64_t n = begin; n < end; ++n) {
    last = earliest(args, following(args, row, last, threadIdx.x, kThreads));
    if (threadIdx.x == 0) give(args, row, n, last);
  }
}

}  // namespace
}  // namespace spark

#define SPARK_NUMBER(name, V)                                                                      \
  extern "C" __global__ void top_k_each_##name(spark::TopKArgs args, int64_t begin, int64_t end) { \
    spark::top_k_each<V>(args, begin, end);                                                        \
  }                                                                                                \
  extern "C" __global__ void __launch_bounds__(spark::top_k_block::kThreads)                       \
      top_k_##name(spark::TopKArgs args, int64_t begin, int64_t end) {                             \
    spark::top_k<V>(args, begin, end);                                                             \
  }
SPARK_FOR_EACH_NUMBER(SPARK_NUMBER)
