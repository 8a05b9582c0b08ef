// indexed.cc: gather and scatter.
#include <cstring>

#include "backend/binary_functions.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/inside.h"
#include "backend/cpu/strided.h"
#include "core/error.h"

namespace spark::cpu {
namespace {

// Refuses an index that is out of range, before anything is moved.
void check_indices(const Indexing& indexing) {
  if (numel(indexing.shape) == 0) return;
  Axes axes = indexing.shape;
  for (int64_t i = 0; i < axes.count; ++i) {
    if (indexing.index_strides.step[i] == 0) axes.size[i] = 1;
  }
  Cursor<1> cursor(axes, {&indexing.index_strides}, 0);
  for (int64_t n = numel(axes); n > 0; --n, cursor.next()) {
    for (int64_t d = 0; d < indexing.components; ++d) {
      const int64_t index = indexing.indices[cursor.offset[0] + d], limit = indexing.limits[d];
      if (index < -limit || index >= limit) {
        throw Error("ERR_ARGUMENT", message("an index is ", index, ", not in [-", limit, ", ", limit, ")"));
      }
    }
  }
}

int64_t element_offset(const Indexing& indexing, int64_t start, const int64_t* indices) {
  for (int64_t d = 0; d < indexing.components; ++d) {
    const int64_t index = indices[d], limit = indexing.limits[d];
    start += inside(index < 0 ? index + limit : index, limit) * indexing.steps[d];
  }
  return start;
}

template <typename T>
void gather_elements(const GatherArgs& args) {
  const Indexing& indexing = args.indexing;
  for_each_row<2>(indexing.shape, {&indexing.strides, &indexing.index_strides},
                  [&](int64_t row, int64_t count, const auto& offset, const auto& step) {
                    const T* x = static_cast<const T*>(args.x);
                    T* y = static_cast<T*>(args.y) + row * count;
                    if (step[1] == 0) {
                      x += element_offset(indexing, offset[0], indexing.indices + offset[1]);
                      if (step[0] == 1) {
                        std::memcpy(y, x, static_cast<size_t>(count) * sizeof(T));
                      } else {
                        for (int64_t i = 0; i < count; ++i) y[i] = x[i * step[0]];
                      }
                    } else {
                      for (int64_t i = 0; i < count; ++i) {
                        const int64_t* indices = indexing.indices + offset[1] + i * step[1];
                        y[i] = x[element_offset(indexing, offset[0] + i * step[0], indices)];
                      }
                    }
                  });
}

}  // namespace

void gather(const GatherArgs& args) {
  check_indices(args.indexing);
  with_bits(args.dtype, [&](auto bits) { gather_elements<decltype(bits)>(args); });
}

// On one thread: targets may repeat, and their order counts.
void scatter(const ScatterArgs& args) {
  check_indices(args.indexing);
  const Indexing& indexing = args.indexing;
  with_number(args.dtype, [&](auto number) {
    Cursor<2> cursor(indexing.shape, {&indexing.strides, &indexing.index_strides}, 0);
    const int64_t count = numel(indexing.shape);
    for (int64_t i = 0; i < count; ++i, cursor.next()) {
      decltype(number) old, update;
      const int64_t at = element_offset(indexing, cursor.offset[0], indexing.indices + cursor.offset[1]);
      load_elements(args.dtype, args.y, at, 1, 1, &old);
      load_elements(args.dtype, args.updates, i, 1, 1, &update);
      const auto value = scattered(args.fn, old, update);
      store_elements(args.dtype, &value, 1, args.y, at, 1);
    }
  });
}

}  // namespace spark::cpu
