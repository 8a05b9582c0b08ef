// pointwise_depthwise.cc: a pointwise convolution and the depthwise one behind it. Where what lies between
// them does not stay in the caches, it is computed in bands of lines, which do.
#include <algorithm>

#include "backend/cpu/conv/conv_reading.h"
#include "backend/cpu/conv/depthwise.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/activation.h"
#include "backend/cpu/gemm/product.h"
#include "backend/cpu/parallel_tasks.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kBandFloats = 1 << 17;  // half of a second-level cache
constexpr int64_t kStripsOfThread = 2;
constexpr int64_t kFewLines = 4;  // of results, in a band: others are computed twice as often

ConvArgs pointwise_of(const PointwiseDepthwiseArgs& args, float* between) {
  const ConvShape& shape = args.shape;
  ConvArgs conv{};
  conv.weight = args.pointwise;
  conv.shape.batch = shape.batch;
  conv.shape.groups = 1;
  conv.shape.channels = args.pointwise.cols;
  conv.shape.filters = shape.channels;
  for (int axis = 0; axis < 3; ++axis) {
    conv.shape.image[axis] = conv.shape.out[axis] = shape.image[axis];
    conv.shape.kernel[axis] = conv.shape.stride[axis] = conv.shape.dilation[axis] = 1;
  }
  conv.x = args.x;
  conv.bias = args.pointwise_bias;
  conv.activation = args.pointwise_activation;
  conv.x_compact = args.x_compact;
  conv.y = between;
  return conv;
}

ConvArgs depthwise_of(const PointwiseDepthwiseArgs& args, const float* between) {
  ConvArgs conv{};
  conv.weight = args.weight;
  conv.shape = args.shape;
  conv.x = between;
  conv.bias = args.bias;
  conv.activation = args.activation;
  conv.y = args.y;
  conv.y_compact = args.y_compact;
  return conv;
}

// Lines of results [line, line + lines) of an image, and all before them that they need.
class Strip {
 public:
  Strip(const PointwiseDepthwiseArgs& args, const float* weights, int64_t held)
      : args_(args), weights_(weights), held_(held) {}

  int64_t floats() const { return args_.shape.channels * pitch(); }

  void compute(int64_t image, int64_t line, int64_t end, float* band) const {
    const ConvShape& shape = args_.shape;
    const int64_t stride = shape.stride[1], kernel = shape.kernel[1], height = shape.image[1];
    int64_t first = 0, next = 0;  // lines of the image that the band holds
    for (int64_t count; line < end; line += count) {
      const int64_t top = line * stride - shape.pad[1];
      count = std::min(end - line, (held_ - kernel) / stride + 1);
      const int64_t from = std::clamp<int64_t>(top, 0, height);
      const int64_t to = std::clamp<int64_t>(top + (count - 1) * stride + kernel, from, height);
      keep(from - first, next - from, band);
      if (next < from) next = from;
      first = from;
      multiply(image, next, to, band + (next - first) * shape.image[2]);
      next = std::max(next, to);
      convolve_band(image, line, count, first, top, next - first, band);
    }
  }

 private:
  int64_t pitch() const { return held_ * args_.shape.image[2]; }

  // Lines that the next results need as well go to the beginning.
  void keep(int64_t from, int64_t lines, float* band) const {
    if (lines <= 0 || from <= 0) return;
    const int64_t across = args_.shape.image[2];
    for (int64_t channel = 0; channel < args_.shape.channels; ++channel) {
      float* plane = band + channel * pitch();
      std::copy_n(plane + from * across, lines * across, plane);
    }
  }

  void multiply(int64_t image, int64_t from, int64_t to, float* band) const {
    const int64_t across = args_.shape.image[2], pixels = numel(args_.shape.image),
                  depth = args_.pointwise.cols;
    if (from >= to) return;
    const float* x = args_.x + image * depth * pixels + from * across;
    const Epilogue epilogue = {args_.pointwise_bias,       nullptr, false,
                               args_.pointwise_activation, band,    pitch()};
    product_into_here(epilogue, args_.shape.channels, (to - from) * across,
                      {rows_of(args_.pointwise), columns_of(x, pixels), depth}, StoreBy::kRows);
  }

  void convolve_band(int64_t image, int64_t line, int64_t count, int64_t first, int64_t top, int64_t lines,
                     const float* band) const {
    const ConvShape& shape = args_.shape;
    const int64_t positions = numel(shape.out), taps = numel(shape.kernel);
    for (int64_t channel = 0; channel < shape.channels; ++channel) {
      const DepthwisePlane plane = {
          weights_ + channel * taps,
          args_.bias ? args_.bias[channel] : 0,
          bounds_of(args_.activation),
          shape.stride[1],
          {first - top, shape.pad[2]},
          {lines, shape.image[2]},
          {count, shape.out[2]},
          band + channel * pitch(),
          args_.y + (image * shape.channels + channel) * positions + line * shape.out[2]};
      kernels().conv.depthwise(shape.kernel[1], plane);
      if (!is_bounds(args_.activation)) activate(args_.activation, count * shape.out[2], plane.y);
    }
  }

  const PointwiseDepthwiseArgs& args_;
  const float* weights_;
  int64_t held_;
};

}  // namespace

void pointwise_depthwise(const PointwiseDepthwiseArgs& args) {
  const ConvShape& shape = args.shape;
  const int64_t line = shape.channels * shape.image[2], threads = thread_count();
  const int64_t all = shape.batch * line * shape.image[1];
  const ConvArgs second = depthwise_of(args, nullptr);
  const bool compact = args.x_compact || args.y_compact;
  if (compact || all / threads < 2 * kBandFloats || !is_depthwise(second)) {
    const Scratch between(all);
    ConvArgs first = pointwise_of(args, between.data());
    ConvArgs then = depthwise_of(args, between.data());
    first.y_compact = then.x_compact =
        is_small_depthwise(shape) && is_small_image(numel(shape.image), shape.channels);
    conv(first);
    return conv(then);
  }
  std::unique_ptr<float[]> storage;
  const auto* weights = static_cast<const float*>(decoded(args.weight, storage).data);
  const int64_t height = shape.out[1];
  const int64_t wanted = (kStripsOfThread * threads + shape.batch - 1) / shape.batch;
  const int64_t lines = std::max<int64_t>((height + wanted - 1) / wanted, 1),
                strips = (height + lines - 1) / lines;
  const int64_t bands =
      std::max<int64_t>((lines * shape.stride[1] * line + kBandFloats / 2) / kBandFloats, 1);
  const int64_t at_once = std::max<int64_t>((lines + bands - 1) / bands, kFewLines);
  const Strip strip(args, weights, (at_once - 1) * shape.stride[1] + shape.kernel[1]);
  parallel_tasks(shape.batch * strips, strip.floats() + 16, [&](int64_t task, float* band) {
    const int64_t begin = task % strips * lines;
    strip.compute(task / strips, begin, std::min(begin + lines, height), band);
  });
}

}  // namespace spark::cpu
