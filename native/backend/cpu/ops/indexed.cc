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
void check_indices(const Places& places) {
  if (numel(places.shape) == 0) return;
  Axes axes = places.shape;
  for (int64_t i = 0; i < axes.count; ++i) {
    if (places.index_strides.step[i] == 0) axes.size[i] = 1;
  }
  Cursor<1> cursor(axes, {&places.index_strides}, 0);
  for (int64_t n = numel(axes); n > 0; --n, cursor.next()) {
    for (int64_t d = 0; d < places.components; ++d) {
      const int64_t index = places.indices[cursor.offset[0] + d], limit = places.limits[d];
      if (index < -limit || index >= limit) {
        throw Error("ERR_ARGUMENT", message("an index is ", index, ", but there are ", limit, " places"));
      }
    }
  }
}

int64_t place(const Places& places, int64_t start, const int64_t* indices) {
  for (int64_t d = 0; d < places.components; ++d) {
    const int64_t index = indices[d], limit = places.limits[d];
    start += inside(index < 0 ? index + limit : index, limit) * places.steps[d];
  }
  return start;
}

template <typename T>
void gather_elements(const GatherArgs& args) {
  const Places& places = args.places;
  for_each_row<2>(places.shape, {&places.strides, &places.index_strides},
                  [&](int64_t row, int64_t count, const auto& offset, const auto& step) {
                    const T* x = static_cast<const T*>(args.x);
                    T* y = static_cast<T*>(args.y) + row * count;
                    if (step[1] == 0) {
                      x += place(places, offset[0], places.indices + offset[1]);
                      if (step[0] == 1) {
                        std::memcpy(y, x, static_cast<size_t>(count) * sizeof(T));
                      } else {
                        for (int64_t i = 0; i < count; ++i) y[i] = x[i * step[0]];
                      }
                    } else {
                      for (int64_t i = 0; i < count; ++i) {
                        const int64_t* indices = places.indices + offset[1] + i * step[1];
                        y[i] = x[place(places, offset[0] + i * step[0], indices)];
                      }
                    }
                  });
}

}  // namespace

void gather(const GatherArgs& args) {
  check_indices(args.places);
  with_bits(args.dtype, [&](auto bits) { gather_elements<decltype(bits)>(args); });
}

// On one thread: places may repeat, and their order counts.
void scatter(const ScatterArgs& args) {
  check_indices(args.places);
  const Places& places = args.places;
  with_number(args.dtype, [&](auto number) {
    Cursor<2> cursor(places.shape, {&places.strides, &places.index_strides}, 0);
    const int64_t count = numel(places.shape);
    for (int64_t i = 0; i < count; ++i, cursor.next()) {
      decltype(number) old, update;
      const int64_t at = place(places, cursor.offset[0], places.indices + cursor.offset[1]);
      load_elements(args.dtype, args.y, at, 1, 1, &old);
      load_elements(args.dtype, args.updates, i, 1, 1, &update);
      const auto value = scattered(args.fn, old, update);
      store_elements(args.dtype, &value, 1, args.y, at, 1);
    }
  });
}

}  // namespace spark::cpu
