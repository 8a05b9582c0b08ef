#include "backend/cpu/depthwise.h"

#include <algorithm>

#include "backend/cpu/conv_reading.h"
#include "backend/cpu/epilogue.h"
#include "backend/cpu/gemm.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrainTerms = 1 << 17;  // products worth waking a thread for

}  // namespace

bool is_depthwise(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  const auto [depth, height, width] = shape.kernel;
  const bool flat = shape.image[0] == 1 && depth == 1 && shape.out[0] == 1 && shape.pad[0] == 0;
  const bool square = height == width && (height == 3 || height == 5) && shape.stride[1] == shape.stride[2];
  const bool dense = shape.dilation[1] == 1 && shape.dilation[2] == 1 && shape.stride[1] <= 2;
  const bool single =
      shape.groups == shape.channels && loops_over(shape.groups, shape.filters / shape.groups);
  return flat && square && dense && single && !args.residual;
}

void depthwise_conv(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  std::unique_ptr<float[]> room;
  const auto* weights = static_cast<const float*>(decoded(args.weight, room).data);
  const int64_t filters = shape.filters, each = filters / shape.groups, taps = volume(shape.kernel),
                pixels = volume(shape.image), positions = volume(shape.out);
  const bool relu = args.activation == Activation::kRelu;
  const Gemm& best = gemm();
  parallel_for(shape.batch * filters, 1 + kGrainTerms / (positions * taps), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const int64_t o = plane % filters, channel = plane / filters * shape.groups + o / each;
      float* y = args.y + plane * positions;
      best.depthwise(shape.kernel[1], {weights + o * taps,
                                       args.bias ? args.bias[o] : 0,
                                       relu,
                                       shape.stride[1],
                                       {shape.pad[1], shape.pad[2]},
                                       {shape.image[1], shape.image[2]},
                                       {shape.out[1], shape.out[2]},
                                       args.x + channel * pixels,
                                       y});
      if (!relu) activate(args.activation, positions, y);
    }
  });
}

}  // namespace spark::cpu
