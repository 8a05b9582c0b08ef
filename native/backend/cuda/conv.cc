#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"
#include "kernels/conv_args.h"

namespace spark::cuda {
namespace {

constexpr int kTile = 64, kThreads = 256;  // conv.cu
constexpr int64_t kDirectLines = 3;        // up to so many lines of a group have a thread for each sum

int64_t volume(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

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
  ConvPassArgs args{};
  args.shape = shape;
  args.w = weight;
  args.dy = dy;
  args.bias = bias;
  args.out = dx;
  launch_pass("_transposed", shape.channels / shape.groups, shape.batch * volume(shape.image), args);
}

}  // namespace

void conv(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  const ConvPassArgs pass{shape,         args.weight,         args.x,          nullptr, args.bias,
                          args.residual, args.residual_first, args.activation, args.y};
  launch_pass("", shape.filters / shape.groups, shape.batch * volume(shape.out), pass);
}

void conv_backward(const ConvBackwardArgs& args) {
  const ConvShape& shape = args.shape;
  if (args.dx) launch_transposed(args.weight, shape, args.dy, nullptr, args.dx);
  if (args.dweight) {
    ConvPassArgs pass{};
    pass.shape = shape;
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
