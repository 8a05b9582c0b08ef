// conv.cc: convolution forward; chooses depthwise, Winograd, bf16 or f32 kernels.
#include <algorithm>

#include "backend/cpu/conv/compact.h"
#include "backend/cpu/conv/conv_bf16.h"
#include "backend/cpu/conv/conv_reading.h"
#include "backend/cpu/conv/depthwise.h"
#include "backend/cpu/conv/winograd.h"
#include "backend/cpu/cpu.h"

namespace spark::cpu {
namespace {

bool takes_tiles(const ConvArgs& args) {
  if (!args.winograd || args.x_compact || args.y_compact) return false;
  const auto& [_, height, width] = args.shape.out;
  return (height + 3) / 4 * ((width + 3) / 4) >= args.min_tiles;
}

}  // namespace

void conv(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  const int64_t positions = numel(shape.out);
  if (shape.batch * shape.filters * positions == 0) return;
  if (takes_tiles(args)) return winograd_conv(args);
  if (is_depthwise(args)) return depthwise_conv(args);
  if ((args.x_compact || args.y_compact) && is_pointwise(shape)) return pointwise_compact(args);
  if (takes_bf16(args)) return conv_bf16(args);
  const ConvReading reading(shape);
  std::unique_ptr<float[]> storage;
  const bool loops = loops_over(shape.groups, shape.filters / shape.groups);
  const bool decode =
      loops || (args.weight.packed && shape.groups > 1);  // a group may begin inside of a panel
  ConvPart part{reading.taps(), {}, decode ? decoded(args.weight, storage) : args.weight, {}};
  std::copy_n(shape.out, 3, part.size);
  part.epilogue = {args.bias, args.residual, args.residual_first, args.activation, args.y, positions};
  part.store = [&](int64_t n, int64_t o, int64_t position, int64_t count, const float* sums) {
    Epilogue to = epilogue_at(part.epilogue, n * shape.filters + o, position);
    to.bias = args.bias ? args.bias + o : nullptr;
    apply_epilogue(sums, 0, 1, count, to);
  };
  part.compact = args.y_compact;
  ConvSource source = reading.source(args.x);
  source.compact = args.x_compact;
  convolve(source, {part});
}

}  // namespace spark::cpu
