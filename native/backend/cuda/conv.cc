#include <optional>
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/device.h"
#include "backend/cuda/launch.h"
#include "core/error.h"
#include "kernels/conv_args.h"
#include "kernels/product_args.h"

namespace spark::cuda {
namespace {

constexpr int kTile = 64, kThreads = 256;  // conv.cu
constexpr int64_t kDirectLines = 3;        // up to so many lines of a group have a thread for each sum
constexpr int64_t kBlocksOfProcessor = 2;  // of tiles of 128, at the same time
constexpr int64_t kEndOfSizes = int64_t{1} << 30;

int64_t volume(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

void check_size(const char* what, int64_t size) {
  if (size > -kEndOfSizes && size < kEndOfSizes) return;
  throw Error("ERR_SHAPE", message("a convolution on the cuda backend takes sizes below ", kEndOfSizes, "; ",
                                   what, " come to ", size, ". Use the cpu backend"));
}

// Kernels count with 32 bits within an image, and along the positions of all images.
void check_sizes(const ConvShape& shape) {
  for (int i = 0; i < 3; ++i) {
    check_size("strides", shape.stride[i]);
    check_size("dilations", shape.dilation[i]);
    check_size("pads", shape.pad[i]);
    check_size("sizes of the image with pads", shape.image[i] + shape.pad[i]);
    check_size("sizes of the output by strides", shape.out[i] * shape.stride[i] - shape.pad[i]);
    check_size("sizes of the kernel by dilations", shape.kernel[i] * shape.dilation[i]);
  }
  const int64_t channels = shape.channels / shape.groups, filters = shape.filters / shape.groups;
  const int64_t most = channels > filters ? channels : filters;
  check_size("channels and taps", most * volume(shape.kernel));
  check_size("elements of an image", channels * volume(shape.image));
  check_size("elements of an output image", filters * volume(shape.out));
  check_size("pixels of all images", shape.batch * volume(shape.image));
  check_size("positions of all images", shape.batch * volume(shape.out));
}

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

// One product for each group; `kernel` names it.
struct Pass {
  const char* kernel;
  bool transposed;
  int64_t lines, cols, depth;  // of a group
};

int64_t tiles_of(const Pass& pass, int64_t groups, int64_t tile) {
  return groups * ceil_div(pass.lines, tile) * ceil_div(pass.cols, tile);
}

// The left side of conv_tensor.cu: the weight itself where it lies so.
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
                            FastDivisor(volume(args.shape.kernel)),
                            memory_->as<uint16_t>()};
    launch("conv_pack",
           message(number == DType::kF16 ? "conv_pack_half" : "conv_pack", pass.kernel, "_",
                   dtype_name(w.dtype)),
           Grid{ceil_div(runs, kThreads)}, Threads{kThreads}, 0, pack);
    data = pack.out;
  }
  const uint16_t* data;

 private:
  std::optional<Scratch> memory_;
};

// Tiles of 128 need fewer elements of x; those of 64 are more, for more processors.
void launch_tensor(DType number, const Pass& pass, const ConvPassArgs& args) {
  const LeftSide left(number, pass, args);
  const bool row_scaled = args.w.dtype == DType::kF8E4M3 || args.w.dtype == DType::kI8;
  const float* row_scale = row_scaled ? args.w.row_scale : nullptr;
  const ConvTensorArgs tensor{args, left.data, pass.transposed ? nullptr : row_scale,
                              pass.transposed ? row_scale : nullptr,
                              args.w.dtype == DType::kNVFP4 ? args.w.tensor_scale : 1.0f};
  const int64_t groups = args.shape.groups, processors = Device::current().attributes.multiprocessors;
  const bool large = pass.lines > 64 && tiles_of(pass, groups, 128) >= kBlocksOfProcessor * processors;
  const int64_t tile = large ? 128 : 64;
  launch("conv_tensor",
         message(number == DType::kF16 ? "conv_tensor_half" : "conv_tensor", pass.kernel,
                 large ? "_128" : "_64"),
         Grid{tiles_of(pass, groups, tile)}, Threads{static_cast<int>(2 * tile)}, 0, tensor);
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
    launch_tensor(compute == Compute::kF16 ? DType::kF16 : DType::kBF16, pass, args);
  }
}

void launch_transposed(const Weight& weight, const ConvShape& shape, const float* dy, const float* bias,
                       float* dx, Compute compute) {
  ConvPassArgs args = pass_of(shape);
  args.w = weight;
  args.dy = dy;
  args.bias = bias;
  args.out = dx;
  launch_pass({"_transposed", true, shape.channels / shape.groups, shape.batch * volume(shape.image),
               shape.filters / shape.groups * volume(shape.kernel)},
              compute, args);
}

}  // namespace

void conv(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  ConvPassArgs pass = pass_of(shape);
  pass.w = args.weight;
  pass.x = args.x;
  pass.bias = args.bias;
  pass.residual = args.residual;
  pass.residual_first = args.residual_first;
  pass.activation = args.activation;
  pass.out = args.y;
  launch_pass({"", false, shape.filters / shape.groups, shape.batch * volume(shape.out), args.weight.cols},
              args.compute, pass);
}

void conv_backward(const ConvBackwardArgs& args) {
  const ConvShape& shape = args.shape;
  if (args.dx) launch_transposed(args.weight, shape, args.dy, nullptr, args.dx, args.compute);
  if (args.dweight) {
    ConvPassArgs pass = pass_of(shape);
    pass.x = args.x;
    pass.dy = args.dy;
    pass.out = args.dweight;
    const int64_t tiles = ceil_div(shape.filters / shape.groups, kTile) * ceil_div(args.weight.cols, kTile);
    launch("conv", "conv_weight_gradient_f32", Grid{shape.groups * tiles}, Threads{kThreads}, 0, pass);
  }
  if (args.dbias) {
    launch("conv", "conv_bias_gradient_f32", Grid{shape.filters}, Threads{kThreads}, 0, args.dy, shape.batch,
           shape.filters, volume(shape.out), args.dbias);
  }
}

void conv_transpose(const ConvTransposeArgs& args) {
  launch_transposed(args.weight, args.shape, args.x, args.bias, args.y, args.compute);
}

}  // namespace spark::cuda
