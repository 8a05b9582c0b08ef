// move.cu: elements that move: strided copies and gather. One thread per element.
// An index out of range gives 0: a kernel cannot throw, and must not read beyond its operand.
// Reference: native/backend/cpu/ops/copy_strided.cc, indexed.cc
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

// Where the element at row-major position i is, or -1 where an index is out of range.
__device__ int64_t element_offset(const Indexing& indexing, int64_t i) {
  int64_t at = 0, indices = 0;
  at_position(indexing.shape, i, [&](int64_t axis, int64_t index) {
    at += index * indexing.strides.step[axis];
    indices += index * indexing.index_strides.step[axis];
  });
  return offset_from(indexing, at, indices);
}

template <typename T>
__device__ void gather(const GatherArgs& args) {
  const int64_t i = thread_index();
  if (i >= numel(args.indexing.shape)) return;
  const int64_t at = element_offset(args.indexing, i);
  static_cast<T*>(args.y)[i] = at < 0 ? T{0} : static_cast<const T*>(args.x)[at];
}

}  // namespace
}  // namespace spark

#define SPARK_SIZE(bits, T)                                                     \
  extern "C" __global__ void copy_strided_##bits(spark::CopyStridedArgs args) { \
    spark::copy_strided<T>(args);                                               \
  }                                                                             \
  extern "C" __global__ void gather_##bits(spark::GatherArgs args) { spark::gather<T>(args); }
SPARK_FOR_EACH_SIZE(SPARK_SIZE)
