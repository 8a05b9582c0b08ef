// weight_readers.cc: argument readers of the layouts of weights.
#include "core/error.h"
#include "napi/readers/readers.h"

namespace spark::napi {

PackWeightArgs read_pack_weight(Arguments& in) {
  PackWeightArgs args{};
  args.weight = in.stored_weight("weight");
  if (args.weight.packed) throw Error("ERR_ARGUMENT", "weight is packed already");
  args.transposed = in.flag("transposed");
  if (args.transposed && args.weight.dtype != DType::kF32) {
    throw Error("ERR_ARGUMENT", message("transposed is true, but a weight of ", dtype_name(args.weight.dtype),
                                        " is in rows"));
  }
  Weight packed = args.weight;
  packed.packed = true;
  const WeightSize size = weight_size(packed);
  args.data = in.output("data", packed.dtype, size.data);
  if (packed.dtype == DType::kNVFP4) args.block_scale = in.output<uint8_t>("blockScale", size.block_scale);
  return args;
}

WinogradWeightArgs read_winograd_weight(Arguments& in) {
  WinogradWeightArgs args{};
  args.weight = in.weight("weight");
  if (args.weight.cols % 9 != 0) {
    throw Error("ERR_SHAPE", message("weight.cols is ", args.weight.cols, ", no multiple of 3 x 3"));
  }
  args.data = in.output<float>("data", winograd_elements(args.weight.rows, args.weight.cols / 9));
  return args;
}

}  // namespace spark::napi
