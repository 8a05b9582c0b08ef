// compact.cc: pointwise convolutions of compact images: products whose left side is an image, as it lies.
#include "backend/cpu/conv/compact.h"

#include "backend/cpu/conv/conv_reading.h"
#include "backend/cpu/gemm/product.h"

namespace spark::cpu {
void pointwise_compact(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  const int64_t positions = numel(shape.out), depth = shape.channels, filters = shape.filters;
  const Operand weight = rows_of(args.weight);
  const Epilogue all{args.bias, args.residual, args.residual_first, args.activation, args.y, filters, true};
  if (args.x_compact && args.y_compact) {
    const Segment segment{rows_of(args.x, depth), weight, depth};
    return product_into(all, shape.batch * positions, filters, segment, StoreBy::kRows);
  }
  for (int64_t n = 0; n < shape.batch; ++n) {
    const float* x = args.x + n * depth * positions;
    Epilogue to = epilogue_at(all, n * positions, 0);  // y begins where it does in planes
    if (args.y_compact) {
      product_into(to, positions, filters, {columns_of(x, positions), weight, depth}, StoreBy::kRows);
      continue;
    }
    to.stride = positions;
    to.bias_of_columns = false;
    product_into(to, positions, filters, {rows_of(x, depth), weight, depth}, StoreBy::kColumns);
  }
}

}  // namespace spark::cpu
