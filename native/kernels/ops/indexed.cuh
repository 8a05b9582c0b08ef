// indexed.cuh: offsets of the elements that gather and scatter address.
#pragma once

#include "kernels/ops/strided.cuh"

namespace spark {

// Where the element is whose walk has come to `start` and whose indices begin at `indices`, or -1 where one
// of them is out of range.
__device__ inline int64_t offset_from(const Indexing& indexing, int64_t start, int64_t indices) {
  for (int64_t d = 0; d < indexing.components; ++d) {
    const int64_t index = indexing.indices[indices + d], limit = indexing.limits[d];
    if (index < -limit || index >= limit) return -1;
    start += (index < 0 ? index + limit : index) * indexing.steps[d];
  }
  return start;
}

}  // namespace spark
