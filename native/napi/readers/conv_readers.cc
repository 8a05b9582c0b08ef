// conv_readers.cc: argument readers of convolutions.
#include "core/error.h"
#include "napi/readers/readers.h"

namespace spark::napi {
namespace {

// Elements of an activation [N, channels, sizes].
int64_t image_elements(const ConvShape& shape, int64_t channels, const int64_t (&sizes)[3]) {
  return elements(shape.batch, channels, sizes[0], sizes[1], sizes[2]);
}

// A transformed weight, which only some convolutions can take.
const float* winograd_filters(Arguments& in, const ConvShape& shape) {
  const float* winograd =
      in.optional_input<float>("winograd", winograd_elements(shape.filters, shape.channels));
  if (winograd && !takes_tiles(shape)) {
    throw Error("ERR_SHAPE",
                "winograd needs a kernel of 3 x 3 along two axes and strides, dilations and groups of 1");
  }
  return winograd;
}

// A weight channels last, or transformed, which only CUDA multiplies.
const uint16_t* channels_last_filters(Arguments& in, ConvArgs& args) {
  const ConvShape& shape = args.shape;
  args.in_tiles = in.flag("inTiles");
  if (args.in_tiles && (!in.has("channelsLast") || !takes_tiles(shape) || shape.filters % kTileUnit != 0 ||
                        shape.channels % kTileUnit != 0 || shape.channels == 0)) {
    throw Error("ERR_SHAPE",
                message("inTiles is for channelsLast of a kernel of 3 x 3 along two axes with strides, "
                        "dilations and groups of 1, and of ",
                        kTileUnit, " · n channels and filters"));
  }
  if (!in.has("channelsLast")) return nullptr;
  if (!in.placed()) throw Error("ERR_UNSUPPORTED", "channelsLast is for CUDA. Leave it out");
  if (args.compute == Compute::kF32) {
    throw Error("ERR_ARGUMENT", "channelsLast is for a compute of bf16 or f16");
  }
  const int64_t count = args.in_tiles ? elements(shape.filters, shape.channels, 16)
                                      : elements(shape.filters, channels_last_depth(shape));
  return in.input<uint16_t>("channelsLast", count);
}

// Refuses images channels last that are in other numbers than products, or whose groups begin anywhere.
void expect_channels_last(const ConvArgs& args, const char* name, FloatType type, int64_t channels) {
  const bool same = args.compute == (type == FloatType::kF16 ? Compute::kF16 : Compute::kBF16);
  if (args.channels_last && args.shape.channels > 0 && same && channels % kChannelUnit == 0) return;
  throw Error("ERR_SHAPE", message(name, " is for channelsLast in the same numbers, with groups of ",
                                   kChannelUnit, " · n channels"));
}

// x and y, which are planes of f32 or images channels last.
void read_images(Arguments& in, ConvArgs& args) {
  const ConvShape& shape = args.shape;
  const int64_t pixels = image_elements(shape, shape.channels, shape.image);
  const int64_t positions = image_elements(shape, shape.filters, shape.out);
  const int64_t channels = shape.channels / shape.groups, filters = shape.filters / shape.groups;
  const FloatType x = read_float_type(in, "xDtype"), y = read_float_type(in, "yDtype");
  if (x == FloatType::kF32) {
    args.x = in.input<float>("x", pixels);
  } else {
    expect_channels_last(args, "xDtype", x, channels);
    args.x_last = static_cast<const uint16_t*>(in.input("x", dtype_of(x), pixels));
  }
  if (y != FloatType::kF32) {
    expect_channels_last(args, "yDtype", y, filters);
    args.y_last = static_cast<uint16_t*>(in.output("y", dtype_of(y), positions));
    return;
  }
  args.y = in.output<float>("y", positions);
  if (!in.has("yChannelsLast")) return;
  const bool half = args.compute == Compute::kF16;
  expect_channels_last(args, "yChannelsLast", half ? FloatType::kF16 : FloatType::kBF16, filters);
  args.y_last = in.output<uint16_t>("yChannelsLast", positions);
}

// Whether images of some sizes are compact: where a plan lets them be, small ones are. Channels of a single
// position lie the same way in any case.
bool is_compact(Arguments& in, const char* name, bool takes, const int64_t (&sizes)[3], int64_t channels) {
  const int64_t positions = sizes[0] * sizes[1] * sizes[2];
  const bool allowed = in.flag(name);
  if (allowed && in.placed()) throw Error("ERR_UNSUPPORTED", message(name, " is for the CPU. Leave it out"));
  if (allowed && !takes) {
    throw Error(
        "ERR_SHAPE",
        message(name, " needs a convolution of one group, or a depthwise one of 3 x 3 or 5 x 5, in f32"));
  }
  return takes && (positions == 1 || (allowed && is_small_image(positions, channels)));
}

}  // namespace

ConvArgs read_conv(Arguments& in) {
  ConvArgs args{};
  args.min_tiles = in.has("minTiles") ? in.size("minTiles") : 0;
  const bool only_tiles = in.has("winograd") && args.min_tiles == 0;
  const bool laid_out = only_tiles || in.has("channelsLast");
  args.weight = laid_out ? in.weight_shape("weight") : in.weight("weight");
  const ConvShape& shape = args.shape = in.conv_shape(args.weight);
  args.bias = in.optional_input<float>("bias", shape.filters);
  args.residual = in.optional_input<float>("residual", image_elements(shape, shape.filters, shape.out));
  args.residual_first = in.flag("residualFirst");
  args.activation = in.activation("activation");
  args.compute = in.plain_compute("compute", args.weight);
  args.winograd = winograd_filters(in, shape);
  args.channels_last = channels_last_filters(in, args);
  read_images(in, args);
  const bool takes = args.compute == Compute::kF32 && takes_compact(shape, args.residual) && !only_tiles;
  args.x_compact = is_compact(in, "xCompact", takes, shape.image, shape.channels);
  args.y_compact = is_compact(in, "yCompact", takes, shape.out, shape.filters);
  return args;
}

ConvBackwardArgs read_conv_backward(Arguments& in) {
  ConvBackwardArgs args{};
  args.weight = in.weight("weight");
  const ConvShape& shape = args.shape = in.conv_shape(args.weight);
  const int64_t pixels = image_elements(shape, shape.channels, shape.image);
  args.dweight = in.optional_output<float>("dweight", elements(args.weight.rows, args.weight.cols));
  args.x = args.dweight ? in.input<float>("x", pixels) : in.optional_input<float>("x", pixels);
  args.dy = in.input<float>("dy", image_elements(shape, shape.filters, shape.out));
  args.dx = in.optional_output<float>("dx", pixels);
  args.dbias = in.optional_output<float>("dbias", shape.filters);
  args.compute = in.plain_compute("compute", args.weight);
  return args;
}

PointwiseDepthwiseArgs read_pointwise_depthwise(Arguments& in) {
  PointwiseDepthwiseArgs args{};
  args.weight = in.weight("weight");
  const ConvShape& shape = args.shape = in.conv_shape(args.weight);
  args.pointwise = in.weight("pointwise");
  if (shape.groups != shape.channels || shape.filters != shape.channels ||
      args.pointwise.rows != shape.channels) {
    throw Error("ERR_SHAPE", message("pointwise has ", args.pointwise.rows,
                                     " rows; the convolution behind it ", shape.groups, " groups, ",
                                     shape.channels, " channels and ", shape.filters, " filters"));
  }
  args.pointwise_bias = in.optional_input<float>("pointwiseBias", shape.channels);
  args.pointwise_activation = in.activation("pointwiseActivation");
  args.x = in.input<float>("x", image_elements(shape, args.pointwise.cols, shape.image));
  args.bias = in.optional_input<float>("bias", shape.channels);
  args.activation = in.activation("activation");
  args.y = in.output<float>("y", image_elements(shape, shape.channels, shape.out));
  args.x_compact = is_compact(in, "xCompact", is_small_depthwise(shape), shape.image, args.pointwise.cols);
  args.y_compact = is_compact(in, "yCompact", is_small_depthwise(shape), shape.out, shape.channels);
  return args;
}

ConvTransposeArgs read_conv_transpose(Arguments& in) {
  ConvTransposeArgs args{};
  args.weight = in.weight("weight");
  const ConvShape& shape = args.shape = in.conv_shape(args.weight);
  args.x = in.input<float>("x", image_elements(shape, shape.filters, shape.out));
  args.bias = in.optional_input<float>("bias", shape.channels);
  args.y = in.output<float>("y", image_elements(shape, shape.channels, shape.image));
  args.compute = in.plain_compute("compute", args.weight);
  return args;
}

}  // namespace spark::napi
