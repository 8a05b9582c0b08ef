// precision_readers.cc: argument readers of casts and quantization.
#include "core/error.h"
#include "napi/readers/readers.h"

namespace spark::napi {

CastArgs read_cast(Arguments& in) {
  CastArgs args{};
  args.src_dtype = in.dtype("srcDtype");
  args.dst_dtype = in.dtype("dstDtype");
  args.count = in.size("count");
  args.saturate = in.flag("saturate");
  args.rounding = in.choice<Rounding>("rounding", {"up", "down", "nearest"});
  args.bits = in.flag("bits");
  if (args.bits && dtype_bits(args.src_dtype) != dtype_bits(args.dst_dtype)) {
    throw Error("ERR_DTYPE",
                message(dtype_name(args.src_dtype), " and ", dtype_name(args.dst_dtype), " differ in size"));
  }
  args.src = in.input("src", args.src_dtype, args.count);
  args.dst = in.output("dst", args.dst_dtype, args.count);
  return args;
}

AmaxArgs read_amax(Arguments& in) {
  AmaxArgs args{};
  args.dtype = in.dtype("dtype");
  args.count = in.size("count");
  args.src = in.input("src", args.dtype, args.count);
  args.out = in.output<float>("out", 1);
  return args;
}

Nvfp4QuantizeArgs read_nvfp4_quantize(Arguments& in) {
  Nvfp4QuantizeArgs args{};
  args.src_dtype = in.dtype("srcDtype");
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.recipe = in.nvfp4_recipe("recipe");
  args.tensor_scale = in.number("tensorScale");
  if (args.recipe == Nvfp4Recipe::kTe) args.encode_scale = in.number("encodeScale");
  if (args.cols % 16 != 0) throw Error("ERR_SHAPE", message("cols is ", args.cols, ", not a multiple of 16"));
  args.src = in.input("src", args.src_dtype, elements(args.rows, args.cols));
  args.packed = in.output<uint8_t>("packed", elements(args.rows, args.cols) / 2);
  args.block_scale = in.output<uint8_t>("blockScale", elements(args.rows, args.cols) / 16);
  return args;
}

Nvfp4DequantizeArgs read_nvfp4_dequantize(Arguments& in) {
  Nvfp4DequantizeArgs args{};
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.tensor_scale = in.number("tensorScale");
  if (args.cols % 16 != 0) throw Error("ERR_SHAPE", message("cols is ", args.cols, ", not a multiple of 16"));
  args.packed = in.input<uint8_t>("packed", elements(args.rows, args.cols) / 2);
  args.block_scale = in.input<uint8_t>("blockScale", elements(args.rows, args.cols) / 16);
  args.dst = in.output<float>("dst", elements(args.rows, args.cols));
  return args;
}

Fp8QuantizeArgs read_fp8_quantize(Arguments& in) {
  Fp8QuantizeArgs args{};
  args.src_dtype = in.dtype("srcDtype");
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.block_rows = in.size("blockRows");
  args.block_cols = in.size("blockCols");
  if (args.block_rows < 1 || args.block_cols < 1) {
    throw Error("ERR_SHAPE", message("a block of ", args.block_rows, " x ", args.block_cols, " is empty"));
  }
  const int64_t down = args.rows / args.block_rows + (args.rows % args.block_rows != 0);
  const int64_t across = args.cols / args.block_cols + (args.cols % args.block_cols != 0);
  args.src = in.input("src", args.src_dtype, elements(args.rows, args.cols));
  args.codes = in.output<uint8_t>("codes", elements(args.rows, args.cols));
  args.scale = in.output<float>("scale", elements(down, across));
  return args;
}

SwizzleScalesArgs read_swizzle_scales(Arguments& in) {
  SwizzleScalesArgs args{};
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.inverse = in.flag("inverse");
  const int64_t down = args.rows / 128 + (args.rows % 128 != 0);
  const int64_t across = args.cols / 4 + (args.cols % 4 != 0);
  const int64_t linear = elements(args.rows, args.cols), tiled = elements(elements(down, across), 512);
  args.src = in.input<uint8_t>("src", args.inverse ? tiled : linear);
  args.dst = in.output<uint8_t>("dst", args.inverse ? linear : tiled);
  return args;
}

}  // namespace spark::napi
