#include <algorithm>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/elements.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// The taps of a window along one axis that are in the image, and how many are in the padded image.
struct Span {
  int64_t start, begin, end, padded;
};

Span span(const Windows& windows, int axis, int64_t q) {
  const int64_t step = windows.dilation[axis], size = windows.image[axis], taps = windows.kernel[axis];
  const int64_t start = q * windows.stride[axis] - windows.pad[axis];
  const auto first_at = [&](int64_t place) {
    return std::clamp<int64_t>((place - start + step - 1) / step, 0, taps);
  };
  const int64_t begin = start < 0 ? first_at(0) : 0;
  const int64_t end = start < size ? first_at(size) : 0;
  const int64_t last = size + windows.pad_end[axis];
  return {start, begin, std::max(begin, end), start < last ? first_at(last) : 0};
}

// Calls body with the index in the plane of each tap in the image.
template <typename Body>
void for_each_tap(const Windows& windows, const Span (&spans)[3], const Body& body) {
  const auto at = [&](int axis, int64_t k) { return spans[axis].start + k * windows.dilation[axis]; };
  for (int64_t i = spans[0].begin; i < spans[0].end; ++i) {
    for (int64_t j = spans[1].begin; j < spans[1].end; ++j) {
      for (int64_t k = spans[2].begin; k < spans[2].end; ++k) {
        body((at(0, i) * windows.image[1] + at(1, j)) * windows.image[2] + at(2, k));
      }
    }
  }
}

// The index of an element in a plane whose first axis moves fastest.
int64_t column_major(const Windows& windows, int64_t index) {
  const int64_t k = index % windows.image[2], j = index / windows.image[2] % windows.image[1];
  const int64_t i = index / windows.image[2] / windows.image[1];
  return i + windows.image[0] * (j + windows.image[1] * k);
}

template <typename V>
V average(const PoolArgs& args, const V* x, const Span (&spans)[3]) {
  double sum = 0;
  int64_t count = 1;
  for_each_tap(args.windows, spans, [&](int64_t at) { sum += static_cast<double>(x[at]); });
  for (const Span& span : spans) count *= args.count_padding ? span.padded : span.end - span.begin;
  return count == 0 ? V{0} : static_cast<V>(sum / static_cast<double>(count));
}

template <typename V>
V maximum(const PoolArgs& args, const V* x, const Span (&spans)[3], int64_t* index) {
  V most = least_number<V>(args.dtype);
  int64_t first = -1;
  for_each_tap(args.windows, spans, [&](int64_t at) {
    if (first >= 0 && !(x[at] > most)) return;
    most = x[at];
    first = at;
  });
  *index = first;
  return most;
}

template <typename V>
void pool_plane(const PoolArgs& args, int64_t plane, V* room) {
  const Windows& windows = args.windows;
  const int64_t image = windows.image[0] * windows.image[1] * windows.image[2];
  const int64_t volume = windows.out[0] * windows.out[1] * windows.out[2];
  const V* x = static_cast<const V*>(args.x) + plane * image;
  if (!stored_as<V>(args.dtype)) {
    load_elements(args.dtype, args.x, plane * image, 1, image, room);
    x = room;
  }
  for (int64_t q = 0; q < volume; ++q) {
    const Span spans[3] = {span(windows, 0, q / windows.out[2] / windows.out[1]),
                           span(windows, 1, q / windows.out[2] % windows.out[1]),
                           span(windows, 2, q % windows.out[2])};
    const int64_t at = plane * volume + q;
    int64_t index = 0;
    const V value = args.fn == PoolFn::kMax ? maximum(args, x, spans, &index) : average(args, x, spans);
    store_elements(args.dtype, &value, 1, args.y, at, 1);
    if (args.indices)
      args.indices[at] = plane * image + (args.column_major ? column_major(windows, index) : index);
  }
}

}  // namespace

void pool(const PoolArgs& args) {
  const Windows& windows = args.windows;
  const int64_t image = windows.image[0] * windows.image[1] * windows.image[2];
  with_number(args.dtype, [&](auto number) {
    using V = decltype(number);
    parallel_for(args.planes, 1 + (1 << 12) / (image + 1), [&](int64_t begin, int64_t end) {
      std::vector<V> room(stored_as<V>(args.dtype) ? 0 : static_cast<size_t>(image));
      for (int64_t plane = begin; plane < end; ++plane) pool_plane<V>(args, plane, room.data());
    });
  });
}

}  // namespace spark::cpu
