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

namespace spark::cuda {
namespace {

using linear_mma_block::kThreads;
using linear_mma_block::kTile;
constexpr int kActivationThreads = 128;
// Rows up to which reading the weight is all that costs time.
constexpr int64_t kFew = linear_few_mma_block::kTokens;

// Bytes of the block scales of [rows, cols] elements in the order of swizzle_scales.
int64_t scale_bytes(int64_t rows, int64_t cols) { return ceil_div(rows, kTile) * ceil_div(cols, 64) * 512; }

// The left operand in NVFP4, and what the product is multiplied by.
class Activation {
 public:
  enum class Form { kCodes, kBF16 };

  Activation(const ProductArgs& args, Form form)
      : codes_(args.rows * padded_depth(form == Form::kCodes ? args.depth / 4 : args.depth) *
               sizeof(uint16_t)),
        scales_(form == Form::kCodes ? scale_bytes(args.rows, args.depth) : 0),
        factors_(2 * sizeof(float)) {
    const bool codes = form == Form::kCodes;
    const Scratch largest(sizeof(float));
    amax({DType::kF32, args.rows * args.depth, args.a.data, largest.as<float>()});
    const int64_t across = codes ? padded_depth(args.depth / 4) / 4 : padded_depth(args.depth) / kNvfp4Block;
    const int64_t rows = codes ? ceil_div(args.rows, kTile) * kTile : args.rows;
    launch("nvfp4_activation", codes ? "nvfp4_activation_codes" : "nvfp4_activation_bf16",
           Grid{ceil_div(rows * across, kActivationThreads)}, Threads{kActivationThreads}, 0,
           Nvfp4ActivationArgs{args.a.data, args.rows, args.depth, largest.as<float>(),
                               codes ? args.w.tensor_scale : 1.0f, this->codes(), scales(), factors()});
  }

  uint16_t* codes() const { return codes_.as<uint16_t>(); }
  uint8_t* scales() const { return scales_.as<uint8_t>(); }
  float* factors() const { return factors_.as<float>(); }

 private:
  Scratch codes_, scales_, factors_;
};

// Both operands as the FP4 tensor cores read them.
struct Fp4Operands {
  explicit Fp4Operands(const ProductArgs& args)
      : x(args, Activation::Form::kCodes), w_scales(scale_bytes(args.cols, args.depth)) {
    swizzle_scales({args.cols, args.depth / kNvfp4Block, false, args.w.block_scale, w_scales.as<uint8_t>()});
  }
  Activation x;
  Scratch w_scales;
};

void launch_own(const ProductArgs& args, const Fp4Operands& operands, const Epilogue& to) {
  launch("linear_fp4_mma", "linear_fp4_mma", Grid{ceil_div(args.rows, kTile) * ceil_div(args.cols, kTile)},
         Threads{kThreads}, 0,
         Fp4MmaArgs{args.rows, args.cols, args.depth, operands.x.codes(), operands.x.scales(), args.w.data,
                    operands.w_scales.as<uint8_t>(), operands.x.factors(), to});
}

bool fits_cublaslt(const ProductArgs& args) { return args.depth % 32 == 0 && is_blas_aligned(args.w.data); }

bool launch_cublaslt(const ProductArgs& args, const Fp4Operands& operands, float* sums) {
  BlasProduct product{
      DType::kNVFP4, args.rows,  args.cols, args.depth, operands.x.codes(), 4 * padded_depth(args.depth / 4),
      args.w.data,   args.depth, true,      sums};
  product.a_scales = operands.x.scales();
  product.w_scales = operands.w_scales.as<uint8_t>();
  product.factors = operands.x.factors();
  return cublaslt_product(product);
}

// The product as plain sums, then second segment and epilogue in one pass.
bool finish(const ProductArgs& args, const Epilogue& to, const std::function<bool(float* sums)>& product) {
  constexpr DType kNumber = DType::kBF16;
  const Packed a2(kNumber, args.a2, args.rows, args.depth2), b2(kNumber, args.b2, args.cols, args.depth2);
  const ProductMmaArgs mma{args.rows,   args.cols, args.depth, nullptr, args.w,
                           args.depth2, a2.data(), b2.data(),  to};
  if (takes_sums(mma)) return product(to.out);
  const Scratch sums(args.rows * args.cols * sizeof(float));
  if (!product(sums.as<float>())) return false;
  launch_epilogue(kNumber, mma, sums.as<float>());
  return true;
}

}  // namespace

bool launch_fp4(const ProductArgs& args, Fp4Ways ways) {
  const bool cublaslt = ways.cublaslt && fits_cublaslt(args);
  if (!ways.own && !cublaslt) return false;
  const Fp4Operands operands(args);
  const auto own = [&](const Epilogue& to) {
    if (args.depth2 == 0) return launch_own(args, operands, to);
    finish(args, to, [&](float* sums) {
      launch_own(args, operands, {.out = sums, .row_stride = args.cols});
      return true;
    });
  };
  const auto other = [&](const Epilogue& to) {
    return finish(args, to, [&](float* sums) { return launch_cublaslt(args, operands, sums); });
  };
  if (!ways.own) return other(args.epilogue);
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
  product.a_scale = x.factors();
  launch_mma_rows(product);
}

}  // namespace spark::cuda
