#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"
#include "core/error.h"
#include "kernels/conv_args.h"

namespace spark::cuda {
namespace {

constexpr int kTile = 64, kThreads = 256;  // conv.cu
constexpr int64_t kDirectLines = 3;        // up to so many lines of a group have a thread for each sum
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

// `kernel` names the pass; lines are those of one group.
void launch_pass(const std::string& kernel, int64_t lines, int64_t cols, const ConvPassArgs& args) {
  const bool direct = args.shape.groups > 1 && lines <= kDirectLines;
  const int64_t groups = args.shape.groups;
  const Grid grid{direct ? ceil_div(groups * lines * cols, kThreads)
                         : groups * ceil_div(lines, kTile) * ceil_div(cols, kTile)};
  const std::string name = (direct ? "conv_direct" : "conv") + kernel + "_" + dtype_name(args.w.dtype);
  launch("conv", name, grid, Threads{kThreads}, 0, args);
}

void launch_transposed(const Weight& weight, const ConvShape& shape, const float* dy, const float* bias,
                       float* dx) {
  ConvPassArgs args = pass_of(shape);
  args.w = weight;
  args.dy = dy;
  args.bias = bias;
  args.out = dx;
  launch_pass("_transposed", shape.channels / shape.groups, shape.batch * volume(shape.image), args);
}

}  // namespace

void conv(const ConvArgs& args) {
  ConvPassArgs pass = pass_of(args.shape);
  pass.w = args.weight;
  pass.x = args.x;
  pass.bias = args.bias;
  pass.residual = args.residual;
  pass.residual_first = args.residual_first;
  pass.activation = args.activation;
  pass.out = args.y;
  launch_pass("", args.shape.filters / args.shape.groups, args.shape.batch * volume(args.shape.out), pass);
}

void conv_backward(const ConvBackwardArgs& args) {
  const ConvShape& shape = args.shape;
  if (args.dx) launch_transposed(args.weight, shape, args.dy, nullptr, args.dx);
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
  launch_transposed(args.weight, args.shape, args.x, args.bias, args.y);
}

}  // namespace spark::cuda
