// move.cu: elements that move: strided copies, one thread per element, transposed ones by tiles in shared
// memory, and gather. An index out of range gives 0: a kernel cannot throw, and must not read beyond its
// operand.
// Reference: native/backend/cpu/ops/copy_strided.cc, indexed.cc
#include "kernels/ops/blocks.h"
#include "kernels/ops/copy_args.h"
#include "kernels/ops/indexed.cuh"

namespace spark {
namespace {

template <typename T>
__device__ void copy_strided(const CopyStridedArgs& args) {
  const int64_t i = thread_index();
  if (i >= numel(args.shape)) return;
  int64_t from = args.src_offset, to = args.dst_offset;
  at_position(args.shape, i, [&](int64_t axis, int64_t index) {
    from += index * args.src_strides.step[axis];
    to += index * args.dst_strides.step[axis];
  });
  static_cast<T*>(args.dst)[to] = static_cast<const T*>(args.src)[from];
}

// One block per tile: a warp loads along the axis that is fastest in src, and stores along that of dst. Lines
// of a tile are padded by a word, or by an element of 64 bits, so that a column lies in all banks.
template <typename T>
__device__ void copy_transposed(const CopyTransposedArgs& args) {
  using namespace copy_block;
  constexpr int kLines = kSide / kHeight;
  constexpr int kPadding = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  alignas(8) __shared__ T tile[kSide][kSide + kPadding];
  const CopyAxis &rows = args.rows, &cols = args.cols;
  const auto tiles_along = [](int64_t size) { return static_cast<uint32_t>((size + kSide - 1) / kSide); };
  const uint32_t across = tiles_along(cols.size), tiles = across * tiles_along(rows.size);
  const int64_t row = int64_t{blockIdx.x % tiles / across} * kSide,
                col = int64_t{blockIdx.x % tiles % across} * kSide;
  int64_t from = args.batch.src_offset, to = args.batch.dst_offset;
  at_position(args.batch.shape, blockIdx.x / tiles, [&](int64_t axis, int64_t index) {
    from += index * args.batch.src_strides.step[axis];
    to += index * args.batch.dst_strides.step[axis];
  });
  const T* src = static_cast<const T*>(args.batch.src) + from;
  T* dst = static_cast<T*>(args.batch.dst) + to;
  T values[kLines];
#pragma unroll
  for (int k = 0; k < kLines; ++k) {
    const int64_t r = row + threadIdx.x, c = col + threadIdx.y + k * kHeight;
    if (r < rows.size && c < cols.size) values[k] = src[r * rows.src_step + c * cols.src_step];
  }
#pragma unroll
  for (int k = 0; k < kLines; ++k) tile[threadIdx.y + k * kHeight][threadIdx.x] = values[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kLines; ++k) {
    const int64_t r = row + threadIdx.y + k * kHeight, c = col + threadIdx.x;
    if (r >= rows.size || c >= cols.size) continue;
    dst[r * rows.dst_step + c * cols.dst_step] = tile[threadIdx.x][threadIdx.y + k * kHeight];
  }
}

// Elements of a thread; blocks that a multiprocessor holds at least. Four elements would spill.
constexpr int kGatherAhead = 2, kGatherBlocks = 5;

// Indices of kGatherAhead elements are loaded together, then the elements.
template <typename T>
__device__ void gather(const GatherArgs& args) {
  const Indexing& indexing = args.indexing;
  for_each_position<kGatherAhead>(numel(indexing.shape), [&](const int64_t(&positions)[kGatherAhead]) {
    int64_t at[kGatherAhead] = {}, indices[kGatherAhead] = {};
    bool inside[kGatherAhead];
#pragma unroll
    for (int k = 0; k < kGatherAhead; ++k) {
      inside[k] = true;
      at_position(indexing.shape, positions[k], [&](int64_t axis, int64_t index) {
        at[k] += index * indexing.strides.step[axis];
        indices[k] += index * indexing.index_strides.step[axis];
      });
    }
    for (int64_t d = 0; d < indexing.components; ++d) {
      const int64_t limit = indexing.limits[d];
      int64_t index[kGatherAhead];
#pragma unroll
      for (int k = 0; k < kGatherAhead; ++k) index[k] = indexing.indices[indices[k] + d];
#pragma unroll
      for (int k = 0; k < kGatherAhead; ++k) {
        inside[k] &= index[k] >= -limit && index[k] < limit;
        at[k] += (index[k] < 0 ? index[k] + limit : index[k]) * indexing.steps[d];
      }
    }
    Ahead<T, kGatherAhead> loaded;
#pragma unroll
    for (int k = 0; k < kGatherAhead; ++k) {
      loaded.values[k] = inside[k] ? static_cast<const T*>(args.x)[at[k]] : T{0};
    }
    return [&args, loaded](int64_t i) mutable { static_cast<T*>(args.y)[i] = loaded.next(); };
  });
}

}  // namespace
}  // namespace spark

#define SPARK_SIZE(bits, T)                                                                       \
  extern "C" __global__ void copy_strided_##bits(spark::CopyStridedArgs args) {                   \
    spark::copy_strided<T>(args);                                                                 \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(spark::copy_block::kThreads)                       \
      copy_transposed_##bits(spark::CopyTransposedArgs args) {                                    \
    spark::copy_transposed<T>(args);                                                              \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(spark::view_block::kThreads, spark::kGatherBlocks) \
      gather_##bits(spark::GatherArgs args) {                                                     \
    spark::gather<T>(args);                                                                       \
  }
SPARK_FOR_EACH_SIZE(SPARK_SIZE)
