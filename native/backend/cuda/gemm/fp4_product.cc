// fp4_product.cc: GEMM of NVFP4 operands on FP4 or bf16 tensor cores.
#include "backend/cuda/gemm/fp4_product.h"

#include <functional>
#include <optional>
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/gemm/choice.h"
#include "backend/cuda/gemm/cublaslt.h"
#include "backend/cuda/gemm/product_mma.h"
#include "backend/cuda/quantize/nvfp4_rows.h"
#include "backend/cuda/runtime/launch.h"
#include "core/error.h"
#include "kernels/gemm/blocks.h"

namespace spark::cuda {
namespace {

using linear_mma_block::kThreads;
using linear_mma_block::kTile;

// Block scales [rows, cols] in the tiles of cuBLASLt.
class SwizzledScales {
 public:
  SwizzledScales(int64_t rows, int64_t cols, const uint8_t* scales)
      : memory_(ceil_div(rows, 128) * ceil_div(cols, 4) * 512) {
    swizzle_scales({rows, cols, false, scales, data()});
  }
  uint8_t* data() const { return memory_.as<uint8_t>(); }

 private:
  Scratch memory_;
};

void launch_own(const ProductArgs& args, const Nvfp4Rows& x, const Epilogue& to,
                const RoundedTarget* target) {
  const Grid grid{ceil_div(args.rows, kTile) * ceil_div(args.cols, kTile)};
  const Fp4MmaArgs mma{args.rows,          args.cols, args.depth,          x.codes, x.scales, args.w.data,
                       args.w.block_scale, x.factors, args.w.tensor_scale, to};
  if (target) {
    return launch("linear_fp4_mma", "linear_fp4_mma_rounded", grid, Threads{kThreads}, 0, mma, *target);
  }
  launch("linear_fp4_mma", "linear_fp4_mma", grid, Threads{kThreads}, 0, mma);
}

bool launch_cublaslt(const ProductArgs& args, const Nvfp4Rows& x, float* sums) {
  const SwizzledScales a_scales(args.rows, args.depth / kNvfp4Block, x.scales);
  const SwizzledScales w_scales(args.cols, args.depth / kNvfp4Block, args.w.block_scale);
  BlasProduct product{
      DType::kNVFP4, args.rows,  args.cols, args.depth, x.codes, 4 * padded_depth(args.depth / 4),
      args.w.data,   args.depth, true,      sums};
  product.a_scales = a_scales.data();
  product.w_scales = w_scales.data();
  return cublaslt_product(product);
}

// The product as plain sums, then their factors, second segment and epilogue in one pass.
bool finish(const ProductArgs& args, const Epilogue& to, const RoundedTarget* target, const float* factors,
            const std::function<bool(float* sums)>& product) {
  constexpr DType kNumber = DType::kBF16;
  const Packed a2(kNumber, args.a2, args.rows, args.depth2), b2(kNumber, args.b2, args.cols, args.depth2);
  const ProductMmaArgs mma{args.rows,   args.cols, args.depth, nullptr, args.w,
                           args.depth2, a2.data(), b2.data(),  to};
  const Scratch sums(args.rows * args.cols * sizeof(float));
  if (!product(sums.as<float>())) return false;
  launch_epilogue(kNumber, mma, sums.as<float>(), 1, factors, target);
  return true;
}

// A product of rounded rows; null: it has no depth.
void launch_rounded(const ProductArgs& args, const Nvfp4Rows* x, Nvfp4Form form) {
  if (x && form == Nvfp4Form::kCodes && launch_fp4(args, *x, allowed_fp4_ways())) return;
  ProductArgs product = args;
  product.compute = Compute::kBF16;
  std::optional<Scratch> decoded;
  if (x) product.packed_a = x->codes;
  if (x && form == Nvfp4Form::kCodes) {
    auto* values = decoded.emplace(nvfp4_bytes(Nvfp4Form::kBF16, args.rows, args.depth)).as<uint16_t>();
    decode_nvfp4(*x, values);
    product.packed_a = values;
  }
  launch_mma_rows(product);
}

}  // namespace

bool launch_fp4(const ProductArgs& args, const Nvfp4Rows& x, Fp4Ways ways, const RoundedTarget* target) {
  const bool by_own = ways.takes_own(args.depth) && reinterpret_cast<uintptr_t>(args.w.block_scale) % 4 == 0;
  const bool by_cublaslt = ways.takes_cublaslt(args.depth) && is_blas_aligned(args.w.data);
  if (by_own) check_weight(args.w);
  const auto own = [&](const Epilogue& to) {
    if (args.depth2 == 0) return launch_own(args, x, to, target);
    finish(args, to, target, nullptr, [&](float* sums) {
      launch_own(args, x, {.out = sums, .row_stride = args.cols}, nullptr);
      return true;
    });
  };
  const auto other = [&](const Epilogue& to) {
    return finish(args, to, target, x.factors, [&](float* sums) { return launch_cublaslt(args, x, sums); });
  };
  if (!by_own) return by_cublaslt && other(args.epilogue);
  if (by_cublaslt) {
    const std::string key = message("fp4 ", args.rows, " ", args.cols, " ", args.depth, " ", args.depth2);
    enqueue_faster({key, args.rows, args.cols, args.epilogue, own, other});
  } else {
    own(args.epilogue);
  }
  return true;
}

void launch_nvfp4_rows(const ProductArgs& args, uint16_t* rounded) {
  const Nvfp4Form form = nvfp4_form(args.rows, args.depth), y_form = nvfp4_form(args.rows, args.cols);
  const bool reads = args.rows > 0 && args.depth > 0;
  std::optional<Nvfp4Activation> own;
  if (reads && !args.rounded_a) {
    own.emplace(form, args.a.data, args.rows, args.depth, args.a_scale, rounded);
  }
  auto* given = const_cast<uint16_t*>(args.rounded_a);  // is only read
  const Nvfp4Rows x = own ? own->rows() : nvfp4_rows_in(given, form, args.rows, args.depth);
  if (args.rows == 0 || args.cols == 0) return;
  ProductArgs product = args;
  if (args.y_rounded && reads && form == y_form) {
    const RoundedTarget target{nvfp4_rows_in(args.y_rounded, y_form, args.rows, args.cols), args.y_scale};
    if (args.rows <= linear_few_mma_block::kTokens) {
      product.packed_a = x.codes;
      return launch_few_rounded(product, target);
    }
    if (form == Nvfp4Form::kCodes && launch_fp4(args, x, allowed_fp4_ways(), &target)) return;
  }
  std::optional<Scratch> y;
  if (args.y_rounded && !product.epilogue.out) {
    product.epilogue.out = y.emplace(args.rows * args.cols * sizeof(float)).as<float>();
  }
  launch_rounded(product, reads ? &x : nullptr, form);
  if (args.y_rounded) {
    Nvfp4Activation(y_form, product.epilogue.out, args.rows, args.cols, args.y_scale, args.y_rounded);
  }
}

}  // namespace spark::cuda
