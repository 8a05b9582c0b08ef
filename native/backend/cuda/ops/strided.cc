// strided.cc: launchers of elementwise operations, reductions, copies and gathers of strided tensors.
#include "backend/cuda/ops/strided.h"

#include <algorithm>

#include "backend/binary_functions.h"
#include "backend/cuda/cuda.h"
#include "core/error.h"
#include "kernels/ops/blocks.h"

namespace spark::cuda {
namespace {

template <typename Fn>
void expect_defined(Fn fn, DType dtype) {
  const Domain domain = domain_of_number(dtype);
  if (defined_for(fn, domain == Domain::kFloat || domain == Domain::kDouble)) return;
  throw Error("ERR_UNSUPPORTED", message("the cuda backend has no such function of ", dtype_name(dtype)));
}

// Elements that one thread folds.
constexpr int64_t kFew = 64;
// Parts of at least this size; blocks for all results, several per multiprocessor on every GPU.
constexpr int64_t kPart = 2048, kMaxBlocks = 1024;

}  // namespace

std::string kernel_of_number(const char* name, DType dtype) {
  if (dtype == DType::kNVFP4) throw Error("ERR_DTYPE", "nvfp4 has no elements to compute with");
  constexpr const char* kNames[] = {"float", "double", "signed", "unsigned"};
  return std::string(name) + "_" + kNames[static_cast<int>(domain_of_number(dtype))];
}

std::string kernel_of_size(const char* name, DType dtype) {
  return std::string(name) + "_" + std::to_string(dtype_bits(dtype));
}

void unary(const UnaryArgs& args) {
  expect_defined(args.fn, args.dtype);
  launch("elementwise", kernel_of_number("unary", args.dtype), threads_sharing(args.count),
         Threads{kViewThreads}, 0, args);
}

void binary(const BinaryArgs& args) {
  expect_defined(args.fn, args.dtype);
  launch("elementwise", kernel_of_number("binary", args.dtype), threads_for(numel(args.shape)),
         Threads{kViewThreads}, 0, args);
}

void select(const SelectArgs& args) {
  launch("elementwise", kernel_of_size("select", args.dtype), threads_for(numel(args.shape)),
         Threads{kViewThreads}, 0, args);
}

void reduce(const ReduceArgs& args) {
  const int64_t results = numel(args.shape), count = numel(args.reduced);
  if (results == 0) return;
  const Threads threads{kViewThreads};
  if (count <= kFew || results >= kMaxBlocks * kViewThreads) {
    launch("reduction", kernel_of_number("reduce_each", args.dtype), threads_for(results), threads, 0, args);
    return;
  }
  const int64_t most = std::max<int64_t>(kMaxBlocks / results, 1);
  const int64_t size = ceil_div(count, std::min(most, ceil_div(count, kPart)));
  const int64_t parts = ceil_div(count, size);
  const Scratch folded(results * parts * sizeof(double));  // f64 or 64-bit integers
  launch("reduction", kernel_of_number("reduce_parts", args.dtype), Grid{results * parts}, threads, 0, args,
         parts, size, folded.as<void>());
  launch("reduction", kernel_of_number("reduce_finish", args.dtype), threads_for(results), threads, 0, args,
         parts, folded.as<const void>());
}

void cumulate(const CumulateArgs& args) {
  const int64_t rows = args.outer * args.inner;
  const Scratch carry(args.size > kSerialSteps ? rows * sizeof(double) : 0);  // f64 or 64-bit integers
  launch_in_pieces(args.size, 1, [&](int64_t begin, int64_t end) {
    launch("reduction", kernel_of_number("cumulate", args.dtype), threads_for(rows), Threads{kViewThreads}, 0,
           args, begin, end, carry.as<void>());
  });
}

void top_k(const TopKArgs& args) {
  const int64_t rows = args.outer * args.inner;
  const bool each = args.size <= kFew || rows >= kMaxBlocks * kViewThreads;
  const int64_t scan = each ? args.size : ceil_div(args.size, kViewThreads);
  launch_in_pieces(args.k, scan, [&](int64_t begin, int64_t end) {
    launch("top_k", kernel_of_number(each ? "top_k_each" : "top_k", args.dtype),
           each ? threads_for(rows) : Grid{rows}, Threads{top_k_block::kThreads}, 0, args, begin, end);
  });
}

void copy_strided(const CopyStridedArgs& args) {
  launch("move", kernel_of_size("copy_strided", args.dtype), threads_for(numel(args.shape)),
         Threads{kViewThreads}, 0, args);
}

void gather(const GatherArgs& args) {
  launch("move", kernel_of_size("gather", args.dtype), threads_sharing(numel(args.indexing.shape)),
         Threads{kViewThreads}, 0, args);
}

}  // namespace spark::cuda
