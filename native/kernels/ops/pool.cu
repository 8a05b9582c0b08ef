// pool.cu: pooling of planes x[planes, image] to y[planes, out], its gradient, and resampling along one axis.
// One thread per element of the result. The gradient is gathered, so that its sums are in the order of the
// windows, as on the CPU.
// Reference: native/backend/cpu/ops/pool.cc, resample.cc; the windows are shared (backend/windows.h)
#include "backend/windows.h"
#include "kernels/ops/strided.cuh"

namespace spark {
namespace {

__device__ int64_t product(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

__device__ Window window_of(const Windows& windows, bool count_pad, int64_t q) {
  const int64_t row = q / windows.out[2];
  return window_at(windows, count_pad, {row / windows.out[1], row % windows.out[1], q % windows.out[2]});
}

// The largest element of a window, NaN if one is, −∞ where there is none; or their mean, summed in f64.
__device__ float pooled(const Windows& windows, const Window& window, PoolFn fn, const float* x) {
  if (fn == PoolFn::kMax) {
    float most = -bits_float(kInfinityBits);
    for_each_tap(windows, window, [&](int64_t p) { most = most >= x[p] || most != most ? most : x[p]; });
    return most;
  }
  return static_cast<float>(sum_of_window(windows, window, x) / window.divisor);
}

// The largest byte of a window, the smallest number of its type where there is none.
template <typename T>
__device__ void pool_bytes(const PoolArgs& args, int64_t i) {
  const Windows& windows = args.windows;
  const int64_t outputs = product(windows.out);
  if (i >= windows.planes * outputs) return;
  const T* x = static_cast<const T*>(args.x) + i / outputs * product(windows.image);
  T most = T(-1) < T(0) ? T(-128) : T(0);
  for_each_tap(windows, window_of(windows, false, i % outputs), [&](int64_t p) { most = max(most, x[p]); });
  static_cast<T*>(args.y)[i] = most;
}

// Outputs [first, last] along an axis whose windows can reach position p.
struct Reaching {
  int64_t first, last;

  __device__ Reaching(const Windows& windows, int axis, int64_t p) {
    const int64_t last_tap = (windows.kernel[axis] - 1) * windows.dilation[axis];
    const int64_t far = p + windows.pad[axis], near = far - last_tap, stride = windows.stride[axis];
    first = near > 0 ? (near + stride - 1) / stride : 0;
    last = min(far / stride, windows.out[axis] - 1);
  }
};

__device__ bool covers(const Windows& windows, const int64_t (&q)[3], const int64_t (&p)[3]) {
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t from_start = p[axis] + windows.pad[axis] - q[axis] * windows.stride[axis];
    if (from_start % windows.dilation[axis] != 0) return false;
  }
  return true;
}

// The share of dx at position `pixel` of its plane that comes from the window at q.
__device__ float share(const PoolBackwardArgs& args, const int64_t* largest, int64_t at, int64_t pixel,
                       const int64_t (&q)[3], const int64_t (&p)[3]) {
  const float dy = static_cast<const float*>(args.dy)[at];
  if (args.fn == PoolFn::kMax) return largest[at] == pixel ? dy : 0;
  return covers(args.windows, q, p) ? dy / window_at(args.windows, args.count_pad, q).divisor : 0;
}

}  // namespace
}  // namespace spark

extern "C" __global__ void pool_f32(spark::PoolArgs args) {
  const int64_t i = spark::thread_index(), outputs = spark::product(args.windows.out);
  if (i >= args.windows.planes * outputs) return;
  const int64_t image = i / outputs * spark::product(args.windows.image);
  const spark::Window window = spark::window_of(args.windows, args.count_pad, i % outputs);
  const float* x = static_cast<const float*>(args.x) + image;
  float* y = static_cast<float*>(args.y) + i;
  if (!args.indices) {
    *y = spark::pooled(args.windows, window, args.fn, x);
    return;
  }
  const int64_t first = spark::first_largest(args.windows, window, x);
  *y = first < 0 ? -INFINITY : x[first];
  args.indices[i] = first < 0 ? first : image + first;
}

extern "C" __global__ void pool_u8(spark::PoolArgs args) {
  spark::pool_bytes<uint8_t>(args, spark::thread_index());
}

extern "C" __global__ void pool_i8(spark::PoolArgs args) {
  spark::pool_bytes<int8_t>(args, spark::thread_index());
}

// largest[planes, out]: the position in its plane that the gradient of a window goes to.
extern "C" __global__ void pool_largest_f32(spark::PoolBackwardArgs args, int64_t* largest) {
  const int64_t i = spark::thread_index(), outputs = spark::product(args.windows.out);
  if (i >= args.windows.planes * outputs) return;
  const float* x = static_cast<const float*>(args.x) + i / outputs * spark::product(args.windows.image);
  largest[i] =
      spark::first_largest(args.windows, spark::window_of(args.windows, args.count_pad, i % outputs), x);
}

extern "C" __global__ void pool_backward_f32(spark::PoolBackwardArgs args, const int64_t* largest) {
  const spark::Windows& windows = args.windows;
  const int64_t i = spark::thread_index(), pixels = spark::product(windows.image);
  if (i >= windows.planes * pixels) return;
  const int64_t pixel = i % pixels, row = pixel / windows.image[2];
  const int64_t p[3] = {row / windows.image[1], row % windows.image[1], pixel % windows.image[2]};
  const spark::Reaching d(windows, 0, p[0]), h(windows, 1, p[1]), w(windows, 2, p[2]);
  const int64_t plane = i / pixels * windows.out[0];
  float sum = 0;
  for (int64_t a = d.first; a <= d.last; ++a) {
    for (int64_t b = h.first; b <= h.last; ++b) {
      const int64_t at = ((plane + a) * windows.out[1] + b) * windows.out[2];
      for (int64_t c = w.first; c <= w.last; ++c) {
        sum += spark::share(args, largest, at + c, pixel, {a, b, c}, p);
      }
    }
  }
  static_cast<float*>(args.dx)[i] = sum;
}

// A tap out of range counts as 0: a kernel cannot throw, and must not read beyond its operand.
extern "C" __global__ void resample_f32(spark::ResampleArgs args) {
  const int64_t i = spark::thread_index();
  if (i >= args.outer * args.out * args.inner) return;
  const int64_t row = i / args.inner, outer = row / args.out, q = row % args.out;
  float sum = args.offset ? args.offset[q] : 0;
  for (int64_t t = q * args.count; t < (q + 1) * args.count; ++t) {
    const int64_t tap = args.taps[t];
    if (tap < 0 || tap >= args.size) continue;
    sum += args.weights[t] * args.x[(outer * args.size + tap) * args.inner + i % args.inner];
  }
  args.y[i] = sum;
}
