// conv_integer.cc: launchers of convolutions of bytes.
#include <algorithm>
#include <optional>

#include "backend/cuda/conv/conv_pass.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/launch.h"
#include "core/error.h"
#include "kernels/conv/blocks.h"

namespace spark::cuda {
namespace {

int32_t narrow(int64_t size) { return static_cast<int32_t>(size); }

// x with its channels last; returns what is behind it, bytes outside of the image.
const uint8_t* pack_image(const ConvIntegerArgs& conv, uint8_t* out) {
  const ConvShape& shape = conv.shape;
  const int64_t channels = byte_channels(shape), pixels = numel(shape.image), count = shape.batch * pixels;
  const ConvBytesImageArgs pack{static_cast<const uint8_t*>(conv.x),
                                conv.x_zero,
                                narrow(shape.groups),
                                narrow(shape.channels / shape.groups),
                                narrow(channels),
                                narrow(count),
                                FastDivisor(std::max<int64_t>(pixels, 1)),
                                out};
  const int64_t tiles = ceil_div(channels, conv_integer_block::kChannels);
  // One block at least writes what is outside of an image without pixels.
  launch("conv_integer", "conv_image_bytes",
         Grid{std::max<int64_t>(ceil_div(count, conv_integer_block::kPixels), 1) * shape.groups * tiles},
         Threads{conv_integer_block::kPixels}, 0, pack);
  return out + count * shape.groups * channels;
}

void launch_tiles(const Pass& pass, ConvIntegerPassArgs args) {
  const ConvShape& shape = args.conv.shape;
  const int64_t channels = byte_channels(shape);
  check_conv_size("padded channels", shape.groups * channels);
  std::optional<Scratch> packed;
  const void* image = args.conv.x;
  const uint8_t* outside = args.conv.x_outside;
  if (!outside) {
    packed.emplace(shape.batch * numel(shape.image) * shape.groups * channels + kByteChannelUnit);
    image = packed->as<void>();
    outside = pack_image(args.conv, packed->as<uint8_t>());
  }
  args.image = static_cast<const uint16_t*>(image);
  args.outside = reinterpret_cast<const uint16_t*>(outside);
  args.channels = narrow(channels / 2);
  const bool large = takes_large_tiles(pass, shape.groups);
  const int tile = large ? conv_mma_block::kLargeTile : conv_mma_block::kSmallTile;
  launch("conv_integer", message("conv_integer_", args.conv.x_signed ? "i8" : "u8", large ? "_128" : "_64"),
         Grid{tiles_of(pass, shape.groups, tile)}, Threads{conv_mma_block::threads(tile)}, 0, args);
}

}  // namespace

void conv_integer(const ConvIntegerArgs& args) {
  const ConvShape& shape = args.shape;
  const ConvIntegerPassArgs pass{pass_of(shape), args, nullptr, nullptr, 0};
  const int64_t cols = shape.batch * numel(shape.out), lines = shape.filters / shape.groups;
  if (cols == 0 || lines == 0) return;
  if (args.channels_last) return launch_tiles({"", false, lines, cols, 0}, pass);
  launch("conv_integer", message("conv_integer_direct_", args.x_signed ? "i8" : "u8"),
         Grid{ceil_div(shape.filters * cols, conv_block::kThreads)}, Threads{conv_block::kThreads}, 0, pass);
}

}  // namespace spark::cuda
