// conv.cc: launchers of convolutions and their gradients.
#include <algorithm>
#include <optional>
#include <string>

#include "backend/cuda/conv/conv_pass.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/launch.h"
#include "core/error.h"
#include "kernels/conv/blocks.h"
#include "kernels/gemm/product_args.h"

namespace spark::cuda {
namespace {

using conv_block::kChunk;
using conv_block::kThreads;
using conv_block::kTile;
using conv_mma_block::kLargeTile;
using conv_mma_block::kSmallTile;
constexpr int64_t kPartsOfProcessor = 8;  // chunks of a gradient that are summed apart at the same time
constexpr int64_t kSpanTiles = 512, kShortestSpan = 512;  // of a gradient on tensor cores

// The left side of conv_mma.cu: the weight itself where it lies so.
class LeftSide {
 public:
  LeftSide(DType number, const Pass& pass, const ConvPassArgs& args) {
    const Weight& w = args.w;
    if (!pass.transposed && w.dtype == number && w.cols % kDepthUnit == 0 &&
        reinterpret_cast<uintptr_t>(w.data) % 16 == 0) {
      data = static_cast<const uint16_t*>(w.data);
      return;
    }
    const int64_t lines = args.shape.groups * pass.lines, runs = lines * padded_depth(pass.depth) / 8;
    memory_.emplace(runs * 8 * sizeof(uint16_t));
    const auto of_group = [&](int64_t count) { return static_cast<int32_t>(count / args.shape.groups); };
    const ConvPackArgs pack{w,
                            static_cast<int32_t>(lines),
                            static_cast<int32_t>(pass.depth),
                            of_group(args.shape.channels),
                            of_group(args.shape.filters),
                            FastDivisor(numel(args.shape.kernel)),
                            memory_->as<uint16_t>()};
    launch("conv_pack",
           message(number == DType::kF16 ? "conv_pack_half" : "conv_pack", pass.kernel, "_",
                   dtype_name(w.dtype)),
           Grid{ceil_div(runs, conv_pack_block::kThreads)}, Threads{conv_pack_block::kThreads}, 0, pack);
    data = pack.out;
  }
  const uint16_t* data;

 private:
  std::optional<Scratch> memory_;
};

void launch_mma(DType number, const Pass& pass, const ConvPassArgs& args) {
  const LeftSide left(number, pass, args);
  const bool row_scaled = args.w.dtype == DType::kF8E4M3 || args.w.dtype == DType::kI8;
  const float* row_scale = row_scaled ? args.w.row_scale : nullptr;
  const ConvMmaArgs mma{args, left.data, pass.transposed ? nullptr : row_scale,
                        pass.transposed ? row_scale : nullptr,
                        args.w.dtype == DType::kNVFP4 ? args.w.tensor_scale : 1.0f};
  const int64_t groups = args.shape.groups;
  const bool large = takes_large_tiles(pass, groups);
  const int tile = large ? kLargeTile : kSmallTile;
  launch("conv_mma",
         message(number == DType::kF16 ? "conv_mma_half" : "conv_mma", pass.kernel, large ? "_128" : "_64"),
         Grid{tiles_of(pass, groups, tile)}, Threads{conv_mma_block::threads(tile)}, 0, mma);
}

void launch_pass(const Pass& pass, Compute compute, const ConvPassArgs& args) {
  const int64_t groups = args.shape.groups;
  if (pass.cols == 0) return;
  if (groups > 1 && pass.lines <= kDirectLines) {
    launch("conv", message("conv_direct", pass.kernel, "_", dtype_name(args.w.dtype)),
           Grid{ceil_div(groups * pass.lines * pass.cols, kThreads)}, Threads{kThreads}, 0, args);
  } else if (compute == Compute::kF32) {
    launch("conv", message("conv", pass.kernel, "_", dtype_name(args.w.dtype)),
           Grid{tiles_of(pass, groups, kTile)}, Threads{kThreads}, 0, args);
  } else {
    launch_mma(compute == Compute::kF16 ? DType::kF16 : DType::kBF16, pass, args);
  }
}

// x with its channels last.
void pack_image(const char* number, const ConvPassArgs& args, uint16_t* out) {
  const auto narrow = [](int64_t size) { return static_cast<int32_t>(size); };
  const ConvShape& shape = args.shape;
  const int64_t channels = channels_last_channels(shape), pixels = numel(shape.image);
  const ConvImageArgs pack{args.x,
                           narrow(shape.groups),
                           narrow(shape.channels / shape.groups),
                           narrow(channels),
                           narrow(shape.batch * pixels),
                           FastDivisor(pixels > 1 ? pixels : 1),
                           out};
  launch("conv_channels_last", message("conv_image_", number),
         Grid{ceil_div(pack.count, conv_image_block::kPixels) * shape.groups *
              ceil_div(channels, conv_image_block::kChannels)},
         Threads{conv_image_block::kThreads}, 0, pack);
}

void launch_tiles(const char* number, const ConvChannelsLastArgs& args) {
  namespace block = conv_winograd_block;
  const ConvShape& shape = args.pass.shape;
  launch("conv_winograd", message("conv_winograd_", number),
         Grid{shape.batch * ceil_div(shape.out[1], block::kHeight) * ceil_div(shape.out[2], block::kWidth) *
              ceil_div(shape.filters, block::kFilters)},
         Threads{block::kThreads}, 0, args);
}

void launch_channels_last(const ConvArgs& conv, const Pass& pass, const ConvPassArgs& args) {
  if (pass.lines == 0 || pass.cols == 0) return;
  const ConvShape& shape = args.shape;
  const int64_t channels = channels_last_channels(shape);
  check_conv_size("padded channels", shape.groups * channels);
  const char* number = conv.compute == Compute::kF16 ? "f16" : "bf16";
  std::optional<Scratch> packed;
  const uint16_t* image = conv.x_last;
  if (!image) {
    packed.emplace(shape.batch * numel(shape.image) * shape.groups * channels * sizeof(uint16_t));
    pack_image(number, args, packed->as<uint16_t>());
    image = packed->as<uint16_t>();
  }
  const ConvChannelsLastArgs last{args, static_cast<int32_t>(channels), image, conv.channels_last,
                                  conv.y_last};
  if (conv.in_tiles) return launch_tiles(number, last);
  const bool large = takes_large_tiles(pass, shape.groups);
  const int tile = large ? kLargeTile : kSmallTile;
  launch("conv_channels_last", message("conv_channels_last_", number, large ? "_128" : "_64"),
         Grid{tiles_of(pass, shape.groups, tile)}, Threads{conv_mma_block::threads(tile)}, 0, last);
}

void add_spans(const float* parts, int64_t spans, int64_t count, bool add, float* out) {
  launch("conv", "conv_add_spans_f32", Grid{ceil_div(count, kThreads)}, Threads{kThreads}, 0, parts,
         static_cast<int32_t>(spans), count, add, out);
}

// Where tiles are too few for the processors, chunks are summed apart and added in the order of a single sum.
void launch_gradient(const Pass& pass, const ConvPassArgs& args) {
  const int64_t groups = args.shape.groups, tiles = tiles_of(pass, groups, kTile);
  const int64_t blocks = kPartsOfProcessor * Device::current().attributes.multiprocessors;
  const int64_t chunks = ceil_div(pass.depth, kChunk), count = groups * pass.lines * pass.cols;
  const auto launch_spans = [&](const ConvPassArgs& to, int64_t first, int64_t span, int64_t spans) {
    const ConvGradientArgs gradient{to, static_cast<int32_t>(first), static_cast<int32_t>(span),
                                    static_cast<int32_t>(spans), nullptr};
    launch("conv", "conv_weight_gradient_f32", Grid{spans * tiles}, Threads{kThreads}, 0, gradient);
  };
  if (chunks <= 1 || 2 * tiles > blocks) return launch_spans(args, 0, pass.depth, 1);
  const int64_t most = std::min(chunks, blocks / tiles);
  const Scratch parts(most * count * sizeof(float));
  ConvPassArgs partial = args;
  partial.out = parts.as<float>();
  for (int64_t chunk = 0; chunk < chunks; chunk += most) {
    const int64_t spans = std::min(most, chunks - chunk);
    launch_spans(partial, chunk * kChunk, kChunk, spans);
    add_spans(parts.as<float>(), spans, count, chunk > 0, args.out);
  }
}

// Spans of positions come of the sizes alone: their sums are added apart.
void launch_mma_gradient(DType number, const Pass& pass, const ConvPassArgs& args) {
  const int64_t groups = args.shape.groups, count = groups * pass.lines * pass.cols;
  const bool wide = pass.lines > kSmallTile && pass.cols > kSmallTile;
  const int64_t tiles = tiles_of(pass, groups, wide ? kLargeTile : kSmallTile);
  const int64_t wanted = std::min(ceil_div(kSpanTiles, tiles), ceil_div(pass.depth, kShortestSpan));
  const int64_t span = padded_depth(ceil_div(pass.depth, wanted)), spans = ceil_div(pass.depth, span);
  const auto narrow = [](int64_t size) { return static_cast<int32_t>(size); };
  const bool half = number == DType::kF16;
  const Scratch left(spans * args.shape.filters * span * sizeof(uint16_t));
  const ConvGradientPackArgs pack{
      args.dy,       narrow(args.shape.filters),         narrow(pass.depth), narrow(span),
      narrow(spans), FastDivisor(numel(args.shape.out)), left.as<uint16_t>()};
  launch("conv_pack", half ? "conv_pack_half_gradient" : "conv_pack_gradient",
         Grid{ceil_div(spans * args.shape.filters * span / 8, conv_pack_block::kThreads)},
         Threads{conv_pack_block::kThreads}, 0, pack);
  std::optional<Scratch> parts;
  if (spans > 1) parts.emplace(spans * count * sizeof(float));
  ConvGradientArgs gradient{args, 0, narrow(span), narrow(spans), left.as<uint16_t>()};
  if (parts) gradient.pass.out = parts->as<float>();
  const bool large =
      wide && spans * tiles >= kBlocksOfProcessor * Device::current().attributes.multiprocessors;
  const int tile = large ? kLargeTile : kSmallTile;
  launch("conv_mma", message(half ? "conv_mma_half" : "conv_mma", "_gradient", large ? "_128" : "_64"),
         Grid{spans * tiles_of(pass, groups, tile)}, Threads{conv_mma_block::threads(tile)}, 0, gradient);
  if (parts) add_spans(parts->as<float>(), spans, count, false, args.out);
}

void launch_weight_gradient(const ConvBackwardArgs& args) {
  const ConvShape& shape = args.shape;
  ConvPassArgs gradient = pass_of(shape);
  gradient.x = args.x;
  gradient.dy = args.dy;
  gradient.out = args.dweight;
  const Pass pass{"_gradient", false, shape.filters / shape.groups, args.weight.cols,
                  shape.batch * numel(shape.out)};
  if (pass.lines == 0 || pass.cols == 0) return;
  const bool direct = shape.groups > 1 && pass.lines <= kDirectLines;
  if (args.compute == Compute::kF32 || direct || pass.depth == 0) return launch_gradient(pass, gradient);
  launch_mma_gradient(args.compute == Compute::kF16 ? DType::kF16 : DType::kBF16, pass, gradient);
}

void launch_transposed(const Weight& weight, const ConvShape& shape, const float* dy, const float* bias,
                       float* dx, Compute compute) {
  ConvPassArgs args = pass_of(shape);
  args.w = weight;
  args.dy = dy;
  args.bias = bias;
  args.out = dx;
  launch_pass({"_transposed", true, shape.channels / shape.groups, shape.batch * numel(shape.image),
               shape.filters / shape.groups * numel(shape.kernel)},
              compute, args);
}

}  // namespace

void conv(const ConvArgs& args) {
  if (args.winograd) {
    throw Error("ERR_UNSUPPORTED", "the cuda backend has no conv in tiles: leave winograd out");
  }
  const ConvShape& shape = args.shape;
  ConvPassArgs pass = pass_of(shape);
  pass.w = args.weight;
  pass.x = args.x;
  pass.bias = args.bias;
  pass.residual = args.residual;
  pass.residual_first = args.residual_first;
  pass.activation = args.activation;
  pass.out = args.y;
  const Pass forward{"", false, shape.filters / shape.groups, shape.batch * numel(shape.out),
                     args.weight.cols};
  if (args.channels_last && shape.channels > 0) return launch_channels_last(args, forward, pass);
  launch_pass(forward, args.compute, pass);
}

void conv_backward(const ConvBackwardArgs& args) {
  const ConvShape& shape = args.shape;
  if (args.dx) launch_transposed(args.weight, shape, args.dy, nullptr, args.dx, args.compute);
  if (args.dweight) launch_weight_gradient(args);
  if (args.dbias) {
    launch("conv", "conv_bias_gradient_f32", Grid{shape.filters}, Threads{kThreads}, 0, args.dy, shape.batch,
           shape.filters, numel(shape.out), args.dbias);
  }
}

void conv_transpose(const ConvTransposeArgs& args) {
  launch_transposed(args.weight, args.shape, args.x, args.bias, args.y, args.compute);
}

}  // namespace spark::cuda
