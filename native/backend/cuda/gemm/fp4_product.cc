// fp4_product.cc: GEMM of NVFP4 operands on FP4 or bf16 tensor cores.
#include "backend/cuda/gemm/fp4_product.h"

#include <functional>
#include <optional>
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/gemm/choice.h"
#include "backend/cuda/gemm/cublaslt.h"
#include "backend/cuda/gemm/fp4_test.h"
#include "backend/cuda/gemm/product_mma.h"
#include "backend/cuda/runtime/launch.h"
#include "core/error.h"
#include "kernels/gemm/blocks.h"
#include "kernels/quantize/blocks.h"

namespace spark::cuda {
namespace {

using linear_mma_block::kThreads;
using linear_mma_block::kTile;
// Rows up to which reading the weight is all that costs time.
constexpr int64_t kFew = linear_few_mma_block::kTokens;

// The left operand in NVFP4, and what the rows of the product are multiplied by; as bf16 the numbers
// themselves.
class Activation {
 public:
  enum class Form { kCodes, kBF16 };

  Activation(const ProductArgs& args, Form form)
      : codes_(args.rows * padded_depth(form == Form::kCodes ? args.depth / 4 : args.depth) *
               sizeof(uint16_t)),
        scales_(form == Form::kCodes ? args.rows * args.depth / kNvfp4Block : 0),
        factors_(form == Form::kCodes ? args.rows * sizeof(float) : 0) {
    const bool codes = form == Form::kCodes;
    launch("nvfp4_activation", codes ? "nvfp4_activation_codes" : "nvfp4_activation_bf16", Grid{args.rows},
           Threads{nvfp4_activation_block::kThreads}, 0,
           Nvfp4ActivationArgs{args.a.data, args.rows, args.depth, args.w.tensor_scale, this->codes(),
                               scales(), factors()});
  }

  uint16_t* codes() const { return codes_.as<uint16_t>(); }
  uint8_t* scales() const { return scales_.as<uint8_t>(); }
  float* factors() const { return factors_.as<float>(); }

 private:
  Scratch codes_, scales_, factors_;
};

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

void launch_own(const ProductArgs& args, const Activation& x, const Epilogue& to) {
  launch("linear_fp4_mma", "linear_fp4_mma", Grid{ceil_div(args.rows, kTile) * ceil_div(args.cols, kTile)},
         Threads{kThreads}, 0,
         Fp4MmaArgs{args.rows, args.cols, args.depth, x.codes(), x.scales(), args.w.data, args.w.block_scale,
                    x.factors(), to});
}

// Whether linear_fp4_mma can read the scales of the weight.
bool fits_own(const ProductArgs& args) {
  return args.depth % 64 == 0 && reinterpret_cast<uintptr_t>(args.w.block_scale) % 4 == 0;
}

bool fits_cublaslt(const ProductArgs& args) { return args.depth % 32 == 0 && is_blas_aligned(args.w.data); }

bool launch_cublaslt(const ProductArgs& args, const Activation& x, float* sums) {
  const SwizzledScales a_scales(args.rows, args.depth / kNvfp4Block, x.scales());
  const SwizzledScales w_scales(args.cols, args.depth / kNvfp4Block, args.w.block_scale);
  BlasProduct product{
      DType::kNVFP4, args.rows,  args.cols, args.depth, x.codes(), 4 * padded_depth(args.depth / 4),
      args.w.data,   args.depth, true,      sums};
  product.a_scales = a_scales.data();
  product.w_scales = w_scales.data();
  return cublaslt_product(product);
}

// The product as plain sums, then their factors, second segment and epilogue in one pass.
bool finish(const ProductArgs& args, const Epilogue& to, const float* factors,
            const std::function<bool(float* sums)>& product) {
  constexpr DType kNumber = DType::kBF16;
  const Packed a2(kNumber, args.a2, args.rows, args.depth2), b2(kNumber, args.b2, args.cols, args.depth2);
  const ProductMmaArgs mma{args.rows,   args.cols, args.depth, nullptr, args.w,
                           args.depth2, a2.data(), b2.data(),  to};
  const Scratch sums(args.rows * args.cols * sizeof(float));
  if (!product(sums.as<float>())) return false;
  launch_epilogue(kNumber, mma, sums.as<float>(), 1, factors);
  return true;
}

}  // namespace

bool launch_fp4(const ProductArgs& args, Fp4Ways ways) {
  const bool takes_own = ways.own && fits_own(args), cublaslt = ways.cublaslt && fits_cublaslt(args);
  if (!takes_own && !cublaslt) return false;
  const Activation x(args, Activation::Form::kCodes);
  const auto own = [&](const Epilogue& to) {
    if (args.depth2 == 0) return launch_own(args, x, to);
    finish(args, to, nullptr, [&](float* sums) {
      launch_own(args, x, {.out = sums, .row_stride = args.cols});
      return true;
    });
  };
  const auto other = [&](const Epilogue& to) {
    return finish(args, to, x.factors(), [&](float* sums) { return launch_cublaslt(args, x, sums); });
  };
  if (!takes_own) return other(args.epilogue);
  if (cublaslt) {
    const std::string key = message("fp4 ", args.rows, " ", args.cols, " ", args.depth, " ", args.depth2);
    enqueue_faster({key, args.rows, args.cols, args.epilogue, own, other});
  } else {
    own(args.epilogue);
  }
  return true;
}

void launch_nvfp4_rows(const ProductArgs& args) {
  ProductArgs product = args;
  product.compute = Compute::kBF16;
  if (args.rows == 0 || args.cols == 0 || args.depth == 0) return launch_mma_rows(product);
  if (args.rows > kFew && launch_fp4(args, allowed_fp4_ways())) return;
  const Activation x(args, Activation::Form::kBF16);
  product.packed_a = x.codes();
  launch_mma_rows(product);
}

}  // namespace spark::cuda
