// integer_readers.cc: argument readers of the int8 operations.
#include <string>

#include "core/error.h"
#include "napi/readers/readers.h"

namespace spark::napi {
namespace {

// i8 or u8.
DType byte_dtype(const Arguments& in, const char* name) {
  const DType dtype = in.dtype(name);
  if (dtype == DType::kI8 || dtype == DType::kU8) return dtype;
  throw Error("ERR_DTYPE", message(name, " is ", dtype_name(dtype), ", neither i8 nor u8"));
}

const void* codes(Arguments& in, const char* name, bool is_signed, int64_t count) {
  return in.input(name, is_signed ? DType::kI8 : DType::kU8, count);
}

// What becomes of sums, without y.
IntegerResult result(Arguments& in, int64_t features) {
  IntegerResult result{};
  result.scale = in.optional_input<float>("scale", features);
  result.dtype = result.scale ? byte_dtype(in, "yDtype") : DType::kI32;
  result.zero = in.optional_input<int32_t>("yZero", 1);
  return result;
}

// Zero points, sums and bias of a weight of so many features.
template <typename Args>
void read_features(Arguments& in, int64_t features, int64_t tokens, Args& args) {
  args.x_zero = in.optional_input<int32_t>("xZero", tokens);
  args.w_zero = in.optional_input<int32_t>("wZero", features);
  args.w_sum = in.optional_input<int32_t>("wSum", features);
  args.bias = in.optional_input<int32_t>("bias", features);
}

// Kernels read four bytes at once.
void check_aligned(const void* w) {
  if (reinterpret_cast<uintptr_t>(w) % 4 != 0) {
    throw Error("ERR_ARGUMENT", "w must begin at a multiple of 4 bytes");
  }
}

template <typename Args>
Args read_affine(Arguments& in) {
  Args args{};
  args.dtype = byte_dtype(in, "dtype");
  args.outer = in.size("outer");
  args.channels = in.size("channels");
  args.inner = in.size("inner");
  args.scale = in.input<float>("scale", args.channels);
  args.zero = in.optional_input<int32_t>("zero", args.channels);
  return args;
}

// The fields <name>Dtype, <name>, <name>Scale and <name>Zero.
ScaledBytes scaled_bytes(Arguments& in, const std::string& name, int64_t count, Access access) {
  ScaledBytes bytes{};
  bytes.dtype = byte_dtype(in, (name + "Dtype").c_str());
  bytes.scale = in.input<float>((name + "Scale").c_str(), 1);
  bytes.zero = in.optional_input<int32_t>((name + "Zero").c_str(), 1);
  bytes.data = access == Access::kRead ? const_cast<void*>(in.input(name.c_str(), bytes.dtype, count))
                                       : in.output(name.c_str(), bytes.dtype, count);
  return bytes;
}

// Refuses bytes with their channels last beside a weight that has them not, or whose groups begin anywhere.
void expect_channels_last(const ConvIntegerArgs& args, const char* name, int64_t channels) {
  if (args.channels_last && channels % kByteChannelUnit == 0) return;
  throw Error("ERR_SHAPE",
              message(name, " is for channelsLast, with groups of ", kByteChannelUnit, " · n channels"));
}

// y, beside which, or in whose place, its channels may be last.
void read_result(Arguments& in, ConvIntegerArgs& args) {
  const ConvShape& shape = args.shape;
  const int64_t count = elements(shape.batch, shape.filters, shape.out[0], shape.out[1], shape.out[2]);
  args.result = result(in, shape.filters);
  if (!in.has("yChannelsLast")) {
    args.result.y = in.output("y", args.result.dtype, count);
    return;
  }
  if (!args.result.scale) throw Error("ERR_ARGUMENT", "yChannelsLast is for bytes: it needs a scale");
  expect_channels_last(args, "yChannelsLast", shape.filters / shape.groups);
  args.y_last = static_cast<uint8_t*>(in.output("yChannelsLast", args.result.dtype, count));
  if (in.has("y")) args.result.y = in.output("y", args.result.dtype, count);
}

}  // namespace

LinearIntegerArgs read_linear_integer(Arguments& in) {
  LinearIntegerArgs args{};
  args.tokens = in.size("tokens");
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.x_signed = in.flag("xSigned");
  args.w_signed = in.flag("wSigned");
  args.packed = in.flag("packed");
  args.x = codes(in, "x", args.x_signed, elements(args.tokens, args.cols));
  if (args.packed) {
    if (!args.w_signed) throw Error("ERR_ARGUMENT", "a packed w is i8: set wSigned");
    args.w = in.input<int8_t>("w", elements((args.rows + 31) / 32, (args.cols + 3) / 4, 128));
    check_aligned(args.w);
  } else {
    args.w = codes(in, "w", args.w_signed, elements(args.rows, args.cols));
  }
  read_features(in, args.rows, args.tokens, args);
  args.result = result(in, args.rows);
  args.result.y = in.output("y", args.result.dtype, elements(args.tokens, args.rows));
  return args;
}

ConvIntegerArgs read_conv_integer(Arguments& in) {
  ConvIntegerArgs args{};
  Weight weight{};
  weight.rows = in.size("rows");
  weight.cols = in.size("cols");
  if (weight.cols == 0) throw Error("ERR_SHAPE", "cols is 0");
  const ConvShape& shape = args.shape = in.conv_shape(weight);
  args.x_signed = in.flag("xSigned");
  args.x = codes(in, "x", args.x_signed,
                 elements(shape.batch, shape.channels, shape.image[0], shape.image[1], shape.image[2]));
  args.channels_last = in.flag("channelsLast");
  if (args.channels_last && !in.placed()) {
    throw Error("ERR_UNSUPPORTED", "channelsLast is for CUDA. Leave it out");
  }
  const int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const int64_t cols = args.channels_last ? elements(taps, byte_channels(shape)) : weight.cols;
  args.w = in.input<int8_t>("w", elements(weight.rows, padded_bytes(cols)));
  check_aligned(args.w);
  read_features(in, weight.rows, 1, args);
  if (in.has("xOutside")) {
    expect_channels_last(args, "xOutside", shape.channels / shape.groups);
    args.x_outside = static_cast<const uint8_t*>(codes(in, "xOutside", args.x_signed, kByteChannelUnit));
  }
  read_result(in, args);
  return args;
}

QuantizeArgs read_quantize(Arguments& in) {
  auto args = read_affine<QuantizeArgs>(in);
  const int64_t count = elements(args.outer, args.channels, args.inner);
  args.x = in.input<float>("x", count);
  args.y = in.output("y", args.dtype, count);
  return args;
}

DequantizeArgs read_dequantize(Arguments& in) {
  auto args = read_affine<DequantizeArgs>(in);
  const int64_t count = elements(args.outer, args.channels, args.inner);
  args.x = in.input("x", args.dtype, count);
  args.y = in.output<float>("y", count);
  return args;
}

LookupArgs read_lookup(Arguments& in) {
  LookupArgs args{};
  args.count = in.size("count");
  const bool x_signed = in.flag("xSigned"), y_signed = in.flag("ySigned");
  args.x = static_cast<const uint8_t*>(codes(in, "x", x_signed, args.count));
  args.table = static_cast<const uint8_t*>(codes(in, "table", y_signed, 256));
  args.y = static_cast<uint8_t*>(in.output("y", y_signed ? DType::kI8 : DType::kU8, args.count));
  return args;
}

BinaryBytesArgs read_binary_bytes(Arguments& in) {
  BinaryBytesArgs args{};
  args.fn = in.choice<BytesFn>("fn", {"add", "mul"});
  args.count = in.size("count");
  args.a = scaled_bytes(in, "a", args.count, Access::kRead);
  args.b = scaled_bytes(in, "b", args.count, Access::kRead);
  args.y = scaled_bytes(in, "y", args.count, Access::kWrite);
  return args;
}

MeanBytesArgs read_mean_bytes(Arguments& in) {
  MeanBytesArgs args{};
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  if (args.cols == 0) throw Error("ERR_SHAPE", "cols is 0");
  args.x = scaled_bytes(in, "x", elements(args.rows, args.cols), Access::kRead);
  args.y = scaled_bytes(in, "y", args.rows, Access::kWrite);
  return args;
}

}  // namespace spark::napi
