// dora_weight.cc: launchers of operations on the whole weight of a DoRA layer: norms, merge, unmerge.
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/gemm/product.h"
#include "backend/cuda/runtime/launch.h"
#include "kernels/dora/blocks.h"

namespace spark::cuda {
namespace {

using dora_block::kThreads;
using dora_factor_block::kSide;

std::string kernel_name(const char* op, const Weight& weight) {
  return op + std::string(dtype_name(weight.dtype));
}

// bf16 holds f32 and f16 weights only rounded, which is not enough for a norm.
bool on_tensor_cores(const Weight& weight) {
  return weight.dtype != DType::kF32 && weight.dtype != DType::kF16;
}

// W·Aᵀ [O, R] in f32.
void product(const DoraNormArgs& args, float* out) {
  const int64_t rank = args.low_rank.rank;
  ProductArgs transposed = with_rows(rank, rows_of(args.low_rank.a, args.weight.cols), args.weight, out);
  transposed.epilogue.row_stride = 1;
  transposed.epilogue.col_stride = rank;
  launch_rows(transposed);
}

void cross(const DoraNormArgs& args, const uint16_t* high, const uint16_t* low, float* partial) {
  const char* kernel = args.low_rank.rank <= 16 ? "dora_cross_16_" : "dora_cross_64_";
  using namespace dora_cross_block;
  const int64_t blocks = ceil_div(args.weight.rows, kRows) * ceil_div(args.weight.cols, kCols);
  launch("dora_norm", kernel_name(kernel, args.weight), Grid{blocks}, Threads{dora_cross_block::kThreads}, 0,
         DoraCrossArgs{args.weight, args.low_rank, high, low, partial});
}

}  // namespace

void weight_norm2(const WeightNorm2Args& args) {
  launch("dora", kernel_name("weight_norm2_", args.weight), Grid{args.weight.rows}, Threads{kThreads}, 0,
         args);
}

void dora_norm(const DoraNormArgs& args) {
  const int64_t in = args.weight.cols, out = args.weight.rows, rank = args.low_rank.rank;
  const int64_t spans = ceil_div(in, kSide), tiles = ceil_div(rank, kSide), factor = rank * padded_depth(in);
  const Scratch high(factor * sizeof(uint16_t)), low(factor * sizeof(uint16_t));
  const Scratch parts(spans * rank * rank * sizeof(float)), gram(rank * rank * sizeof(float));
  launch("dora_norm", "dora_factor_f32", Grid{spans * tiles * tiles}, Threads{dora_factor_block::kThreads}, 0,
         args.low_rank.a, rank, in, high.as<uint16_t>(), low.as<uint16_t>(), parts.as<float>());
  launch_column_sums(parts.as<float>(), nullptr, spans, rank * rank, nullptr, gram.as<float>());
  NormTerms terms{gram.as<float>(), nullptr, nullptr, 0};
  const bool mma = on_tensor_cores(args.weight);
  const int64_t cross_spans = rank > 0 ? ceil_div(in, dora_cross_block::kCols) : 0;
  const Scratch memory((mma ? cross_spans * out : out * rank) * sizeof(float));
  if (mma) {
    if (rank > 0) cross(args, high.as<uint16_t>(), low.as<uint16_t>(), memory.as<float>());
    terms.partial = memory.as<float>();
    terms.spans = cross_spans;
  } else {
    product(args, memory.as<float>());
    terms.product = memory.as<float>();
  }
  launch("dora_norm", kernel_name("dora_norm_", args.weight), Grid{ceil_div(out, dora_norm_block::kRows)},
         Threads{dora_norm_block::kThreads}, 0, args, terms);
}

void dora_merge(const DoraMergeArgs& args) {
  const int64_t blocks =
      ceil_div(args.weight.rows, dora_block::kRows) * ceil_div(args.weight.cols, dora_block::kCols);
  launch("dora", kernel_name("dora_merge_", args.weight), Grid{blocks}, Threads{kThreads}, 0, args);
}

void dora_unmerge(const DoraUnmergeArgs& args) {
  const int64_t blocks = ceil_div(args.rows, dora_block::kRows) * ceil_div(args.cols, dora_block::kCols);
  launch("dora", "dora_unmerge_f32", Grid{blocks}, Threads{kThreads}, 0, args);
}

}  // namespace spark::cuda
