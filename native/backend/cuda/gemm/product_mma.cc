// product_mma.cc: launchers of GEMM on tensor cores.
#include "backend/cuda/gemm/product_mma.h"

#include <algorithm>
#include <optional>
#include <string>

#include "backend/block_formats.h"
#include "backend/cuda/gemm/choice.h"
#include "backend/cuda/gemm/cublaslt.h"
#include "backend/cuda/gemm/product.h"
#include "backend/cuda/runtime/launch.h"
#include "backend/cuda/runtime/limits.h"
#include "core/error.h"
#include "kernels/gemm/blocks.h"

namespace spark::cuda {
namespace {

constexpr int64_t kFew = linear_few_mma_block::kTokens;
constexpr int64_t kBatch = 256;  // rows up to which tiles of 128 are too few
constexpr int64_t kNarrow =
    64;  // columns up to which reading the left operand again for each kFew is cheaper
constexpr int kPackThreads = 256;

// The kernels for f16 have names of their own.
std::string kernel_name(DType number, const char* variant, const Weight& w) {
  return message(number == DType::kF16 ? "linear_mma_half_" : "linear_mma_", variant, dtype_name(w.dtype));
}

void launch_few(DType number, const ProductMmaArgs& args, const RoundedTarget* target = nullptr) {
  const char* family = is_block_format(args.w.dtype) ? "linear_blocks_few_mma" : "linear_few_mma";
  const std::string kernel = kernel_name(number, args.rows <= 8 ? "8_" : "16_", args.w);
  const Grid grid{args.rows > 0 ? ceil_div(args.cols, linear_few_mma_block::kRows) : 0};
  const Threads threads{linear_few_mma_block::threads(args.cols)};
  if (target) return launch(family, kernel + "_rounded", grid, threads, 0, args, *target);
  launch(family, kernel, grid, threads, 0, args);
}

// Stripes of K: enough blocks for two waves of a GB10, unless stripes would be short. Not by the rows, whose
// bits are the same in every batch, nor by the GPU.
int64_t stripes_of(int64_t cols, int64_t depth) {
  using namespace linear_batch_mma_block;
  constexpr int64_t kBlocks = 192, kFewestSpans = 4;
  const int64_t most = std::max<int64_t>(depth / (kFewestSpans * kSpan), 1);
  return std::min(ceil_div(kBlocks, std::max<int64_t>(ceil_div(cols, kCols), 1)), most);
}

void launch_batch(DType number, const ProductMmaArgs& args) {
  using namespace linear_batch_mma_block;
  const bool few = args.rows <= kFewRows;
  const int64_t tiles = ceil_div(args.rows, few ? kFewRows : kRows) * ceil_div(args.cols, kCols);
  const int64_t stripes = stripes_of(args.cols, args.depth);
  std::optional<Scratch> memory;
  if (stripes > 1 || args.depth2 > 0) memory.emplace(stripes * args.rows * args.cols * sizeof(float));
  float* parts = memory ? memory->as<float>() : nullptr;
  launch(is_block_format(args.w.dtype) ? "linear_blocks_batch_mma" : "linear_batch_mma",
         kernel_name(number, few ? "32_" : "64_", args.w), Grid{tiles * stripes}, Threads{kThreads}, 0, args,
         Stripes{stripes, parts});
  if (parts) launch_epilogue(number, args, parts, stripes);
}

// Whether the product is narrow, with a right operand that has to be packed anyway.
bool is_narrow(const ProductArgs& args) {
  const Epilogue& to = args.epilogue;
  return args.cols <= kNarrow && args.depth2 == 0 && args.w.dtype == DType::kF32 && !to.bias &&
         !to.col_factor && to.out_dtype == FloatType::kF32;
}

// The transposed product: the left operand is the weight of launch_few, the right one its few rows.
void launch_narrow(const ProductArgs& args, const uint16_t* a, bool rows) {
  const DType number = number_of(args.compute);
  const auto* right = static_cast<const float*>(args.w.data);
  const int64_t depth = padded_depth(args.depth);
  const Packed w(number, rows ? rows_of(right, args.w.cols) : columns_of(right, args.w.cols), args.cols,
                 args.depth);
  const Weight left{number, args.rows, depth, a, nullptr, nullptr, 0, false};
  for (int64_t first = 0; first < args.cols; first += kFew) {
    Epilogue to = args.epilogue;
    const int64_t offset = first * to.col_stride;
    const auto from_first = [&](auto* pointer) { return pointer ? pointer + offset : nullptr; };
    std::swap(to.row_stride, to.col_stride);
    std::swap(to.row_factor, to.col_factor);
    to.out = from_first(to.out);
    to.mask = from_first(to.mask);
    to.residual = from_first(to.residual);
    to.copy = from_first(to.copy);
    launch_few(number, {std::min(kFew, args.cols - first), args.rows, args.depth, w.data() + first * depth,
                        left, 0, nullptr, nullptr, to});
  }
}

bool fits_cublaslt(DType number, const Weight& w) {
  return w.dtype == number && w.cols % 8 == 0 && is_blas_aligned(w.data);
}

// The product by cuBLASLt, then second segment and epilogue in one pass.
bool launch_cublaslt(DType number, const ProductMmaArgs& args, bool rows) {
  const bool direct = takes_sums(args);
  std::optional<Scratch> memory;
  if (!direct) memory.emplace(args.rows * args.cols * sizeof(float));
  float* sums = direct ? args.epilogue.out : memory->as<float>();
  const BlasProduct product{number,      args.rows,   args.cols, args.depth, args.a, padded_depth(args.depth),
                            args.w.data, args.w.cols, rows,      sums};
  if (!cublaslt_product(product)) return false;
  if (direct) return true;
  launch_epilogue(number, args, sums);
  return true;
}

// Whether the kernels for few rows can read the left operand as it lies, in f32.
bool reads_floats(const ProductArgs& args) {
  const Lines& a = args.a;
  const bool plain = !a.mask && !a.k_scale && a.k_shift == 0 && a.factor == 1;
  return plain && !args.packed_a && a.k_stride == 1 && a.line_stride == args.depth && args.depth % 8 == 0 &&
         is_blas_aligned(a.data);
}

void launch_mma(const ProductArgs& args, bool rows) {
  const DType number = number_of(args.compute);
  const bool narrow = is_narrow(args), few = rows && args.rows <= kFew;
  if (!narrow && !few) check_weight(args.w);
  if (few && !narrow && reads_floats(args)) {
    const Packed a2(number, args.a2, args.rows, args.depth2), b2(number, args.b2, args.cols, args.depth2);
    return launch_few(number, {args.rows, args.cols, args.depth, nullptr, args.w, args.depth2, a2.data(),
                               b2.data(), args.epilogue, args.a.data});
  }
  const bool row_scaled = args.w.dtype == DType::kF8E4M3 || args.w.dtype == DType::kI8;
  std::optional<Packed> own;
  if (!args.packed_a)
    own.emplace(number, args.a, args.rows, args.depth, row_scaled && !rows ? args.w.row_scale : nullptr);
  const uint16_t* a = own ? own->data() : args.packed_a;
  if (narrow) return launch_narrow(args, a, rows);
  const Packed a2(number, args.a2, args.rows, args.depth2), b2(number, args.b2, args.cols, args.depth2);
  const ProductMmaArgs mma{args.rows, args.cols, args.depth,   a, args.w, args.depth2,
                           a2.data(), b2.data(), args.epilogue};
  if (few) return launch_few(number, mma);
  const auto with = [&](const Epilogue& to) {
    ProductMmaArgs changed = mma;
    changed.epilogue = to;
    return changed;
  };
  const auto ours = [&](const Epilogue& to) {
    if (rows && args.rows <= kBatch) return launch_batch(number, with(to));
    using namespace linear_mma_block;
    launch(is_block_format(args.w.dtype) ? "linear_blocks_mma" : "linear_mma",
           kernel_name(number, rows ? "" : "backward_", args.w),
           Grid{ceil_div(args.rows, kTile) * ceil_div(args.cols, kTile)}, Threads{kThreads}, 0, with(to));
  };
  if (args.rows == 0 || args.cols == 0 || args.depth == 0 || !fits_cublaslt(number, args.w)) {
    return ours(args.epilogue);
  }
  const std::string key =
      message(dtype_name(number), rows ? " rows " : " columns ", args.rows, " ", args.cols, " ", args.depth,
              " ", args.depth2, takes_sums(mma) ? " direct" : "");
  enqueue_faster({key, args.rows, args.cols, args.epilogue, ours,
                  [&](const Epilogue& to) { return launch_cublaslt(number, with(to), rows); }});
}

}  // namespace

DType number_of(Compute compute) { return compute == Compute::kF16 ? DType::kF16 : DType::kBF16; }

Packed::Packed(DType number, const Lines& lines, int64_t count, int64_t depth, const float* k_factor)
    : memory_(count * padded_depth(depth) * sizeof(uint16_t)) {
  const PackArgs args{lines, count, depth, k_factor, data()};
  if (lines.k_stride == 1) {
    launch("pack", std::string("pack_rows_") + dtype_name(number),
           Grid{ceil_div(count * padded_depth(depth) / 8, kPackThreads)}, Threads{kPackThreads}, 0, args);
  } else {
    using namespace pack_columns_block;
    launch("pack", std::string("pack_columns_") + dtype_name(number),
           Grid{ceil_div(count, kSide) * (padded_depth(depth) / kSide)}, Threads{kSide, kHeight}, 0, args);
  }
}

void check_weight(const Weight& weight) {
  check_size("a product on tensor cores", "rows of the weight", weight.rows);
  check_size("a product on tensor cores", "columns of the weight", weight.cols);
}

bool takes_sums(const ProductMmaArgs& args) {
  const Epilogue& to = args.epilogue;
  return is_blas_aligned(to.out) && args.depth2 == 0 && to.row_stride == args.cols && to.col_stride == 1 &&
         !to.add && to.out_dtype == FloatType::kF32 && to.factor == 1 && !to.row_factor && !to.col_factor &&
         !to.mask && !to.bias && !to.residual && !to.copy && to.activation == Activation::kNone;
}

void launch_epilogue(DType number, const ProductMmaArgs& args, const float* parts, int64_t count,
                     const float* factors, const RoundedTarget* target) {
  using namespace product_epilogue_block;
  const Grid grid{ceil_div(args.rows, kRows) * ceil_div(args.cols, kCols)};
  if (target) {
    return launch("product_epilogue", "product_epilogue_rounded", grid, Threads{kThreads}, 0, args, parts,
                  count, factors, *target);
  }
  launch("product_epilogue", number == DType::kF16 ? "product_epilogue_half" : "product_epilogue", grid,
         Threads{kThreads}, 0, args, parts, count, factors);
}

void launch_few_rounded(const ProductArgs& args, const RoundedTarget& target) {
  constexpr DType kNumber = DType::kBF16;
  const Packed a2(kNumber, args.a2, args.rows, args.depth2), b2(kNumber, args.b2, args.cols, args.depth2);
  launch_few(kNumber,
             {args.rows, args.cols, args.depth, args.packed_a, args.w, args.depth2, a2.data(), b2.data(),
              args.epilogue},
             &target);
}

void launch_mma_rows(const ProductArgs& args) { launch_mma(args, true); }
void launch_mma_columns(const ProductArgs& args) { launch_mma(args, false); }

}  // namespace spark::cuda
