// weight_size.cc: elements of the arrays of a weight in each format and layout.
#include "backend/block_panels.h"
#include "core/error.h"
#include "napi/arguments.h"

namespace spark::napi {
namespace {

int64_t block_weight_bytes(const Weight& weight) {
  const BlockSize block = block_size(weight.dtype);
  if (weight.cols % block.elements != 0) {
    throw Error("ERR_SHAPE", message("weight has ", weight.cols, " columns; ", dtype_name(weight.dtype),
                                     " needs a multiple of ", block.elements));
  }
  if (!weight.packed) return elements(weight.rows, elements(weight.cols / block.elements, block.bytes));
  return elements((weight.rows + kPanelRows - 1) / kPanelRows, panel_bytes(weight.dtype, weight.cols));
}

}  // namespace

WeightSize weight_size(const Weight& weight) {
  int64_t rows = weight.rows, cols = weight.cols;
  const bool nvfp4 = weight.dtype == DType::kNVFP4;
  if (nvfp4 && cols % 16 != 0) {
    throw Error("ERR_SHAPE", message("weight has ", cols, " columns; nvfp4 needs a multiple of 16"));
  }
  elements(rows + kPanelRows, cols + 1);  // refuses what would overflow below
  if (is_block_format(weight.dtype)) return {block_weight_bytes(weight), 0};
  if (weight.packed) {
    rows = (rows + kPanelRows - 1) / kPanelRows * kPanelRows;
    if (weight.dtype == DType::kBF16) cols += cols % 2;
  }
  return {nvfp4 ? rows * cols / 2 : rows * cols, nvfp4 ? rows * cols / 16 : 0};
}

int64_t winograd_elements(int64_t filters, int64_t channels) {
  Weight matrix{};
  matrix.dtype = DType::kF32;
  matrix.rows = filters;
  matrix.cols = channels;
  matrix.packed = true;
  return elements(36, weight_size(matrix).data);
}

}  // namespace spark::napi
