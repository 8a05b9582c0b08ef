#include "backend/cuda/conv/conv_pass.h"

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/launch.h"
#include "backend/cuda/runtime/limits.h"
#include "kernels/conv/blocks.h"

namespace spark::cuda {
namespace {

using conv_mma_block::kLargeTile;
using conv_mma_block::kSmallTile;

// Kernels count with 32 bits within an image, and along the positions of all images.
void check_sizes(const ConvShape& shape) {
  const auto check = check_conv_size;
  for (int i = 0; i < 3; ++i) {
    check("strides", shape.stride[i]);
    check("dilations", shape.dilation[i]);
    check("pads", shape.pad[i]);
    check("sizes of the image with pads", shape.image[i] + shape.pad[i]);
    check("sizes of the output by strides", shape.out[i] * shape.stride[i] - shape.pad[i]);
    check("sizes of the kernel by dilations", shape.kernel[i] * shape.dilation[i]);
  }
  const int64_t channels = shape.channels / shape.groups, filters = shape.filters / shape.groups;
  const int64_t most = channels > filters ? channels : filters;
  check("channels and taps", most * numel(shape.kernel));
  check("elements of an image", channels * numel(shape.image));
  check("elements of an output image", filters * numel(shape.out));
  check("pixels of all images", shape.batch * numel(shape.image));
  check("positions of all images", shape.batch * numel(shape.out));
}

}  // namespace

void check_conv_size(const char* what, int64_t size) { check_size("a convolution", what, size); }

ConvPassArgs pass_of(const ConvShape& shape) {
  check_sizes(shape);
  ConvPassArgs args{};
  args.shape = shape;
  args.kernel = FastAxes(shape.kernel);
  args.image = FastAxes(shape.image);
  args.out_axes = FastAxes(shape.out);
  args.stride = FastAxes(shape.stride);
  return args;
}

int64_t tiles_of(const Pass& pass, int64_t groups, int64_t tile) {
  return groups * ceil_div(pass.lines, tile) * ceil_div(pass.cols, tile);
}

bool takes_large_tiles(const Pass& pass, int64_t groups) {
  const int64_t processors = Device::current().attributes.multiprocessors;
  return pass.lines > kSmallTile && tiles_of(pass, groups, kLargeTile) >= kBlocksOfProcessor * processors;
}

}  // namespace spark::cuda
