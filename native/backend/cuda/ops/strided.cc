// strided.cc: launchers of elementwise operations, reductions, copies and gathers of strided tensors.
#include "backend/cuda/ops/strided.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "backend/binary_functions.h"
#include "backend/cuda/cuda.h"
#include "core/error.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/copy_args.h"

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

constexpr int64_t kShortestLine = 8;  // elements of a line of a tile; shorter ones are copied one by one
constexpr int64_t kWidest = 64;       // bits that a thread copies

// The axes of a copy, the fastest of dst last. Those along which both sides go on evenly are one.
struct CopyAxes {
  int64_t count = 0;
  CopyAxis at[kMaxAxes];

  explicit CopyAxes(const CopyStridedArgs& args) {
    int64_t all = 0;
    for (int64_t i = 0; i < args.shape.count; ++i) {
      if (args.shape.size[i] == 1) continue;
      const CopyAxis axis{args.shape.size[i], args.src_strides.step[i], args.dst_strides.step[i]};
      int64_t place = all++;
      for (; place > 0 && std::abs(at[place - 1].dst_step) < std::abs(axis.dst_step); --place) {
        at[place] = at[place - 1];
      }
      at[place] = axis;
    }
    for (int64_t i = 0; i < all; ++i) {
      const CopyAxis axis = at[i];
      CopyAxis* before = count > 0 ? &at[count - 1] : nullptr;
      if (before && before->src_step == axis.size * axis.src_step &&
          before->dst_step == axis.size * axis.dst_step) {
        *before = {before->size * axis.size, axis.src_step, axis.dst_step};
      } else {
        at[count++] = axis;
      }
    }
  }

  // The one along which src is fastest, and does not repeat.
  CopyAxis* fastest_of_src() {
    const auto step = [](const CopyAxis& axis) {
      return axis.src_step == 0 ? std::numeric_limits<int64_t>::max() : std::abs(axis.src_step);
    };
    return std::min_element(at, at + count,
                            [&](const CopyAxis& a, const CopyAxis& b) { return step(a) < step(b); });
  }

  bool transposed() {
    if (count < 2) return false;
    const CopyAxis &rows = *fastest_of_src(), &cols = at[count - 1];
    return std::abs(rows.src_step) < std::abs(cols.src_step) && rows.size >= kShortestLine &&
           cols.size >= kShortestLine;
  }

  // `args` along these axes.
  CopyStridedArgs copy_like(CopyStridedArgs args) const {
    args.shape.count = count;
    for (int64_t i = 0; i < count; ++i) {
      args.shape.size[i] = at[i].size;
      args.src_strides.step[i] = at[i].src_step;
      args.dst_strides.step[i] = at[i].dst_step;
    }
    return args;
  }
};

void launch_transposed(const CopyStridedArgs& args, CopyAxes axes) {
  using namespace copy_block;
  CopyAxis* const fastest = axes.fastest_of_src();
  const CopyAxis rows = *fastest, cols = axes.at[axes.count - 1];
  std::copy(fastest + 1, axes.at + axes.count, fastest);
  axes.count -= 2;
  const CopyTransposedArgs copy{axes.copy_like(args), rows, cols};
  launch("move", kernel_of_size("copy_transposed", args.dtype),
         Grid{numel(copy.batch.shape) * ceil_div(rows.size, kSide) * ceil_div(cols.size, kSide)},
         Threads{kSide, kHeight}, 0, copy);
}

// Takes two neighbours of `bits` each as one element, where both sides have them side by side.
bool pair_up(CopyStridedArgs& args, int64_t bits) {
  const int64_t last = args.shape.count - 1;
  if (last < 0 || args.src_strides.step[last] != 1 || args.dst_strides.step[last] != 1) return false;
  const auto is_even = [&](const Strides& strides, int64_t offset, const void* data) {
    const auto even = [](int64_t step) { return step % 2 == 0; };
    return std::all_of(strides.step, strides.step + last, even) && even(offset) &&
           reinterpret_cast<uintptr_t>(data) % (2 * bits / 8) == 0;
  };
  if (args.shape.size[last] % 2 != 0 || !is_even(args.src_strides, args.src_offset, args.src) ||
      !is_even(args.dst_strides, args.dst_offset, args.dst)) {
    return false;
  }
  args.shape.size[last] /= 2;
  args.src_offset /= 2, args.dst_offset /= 2;
  for (int64_t i = 0; i < last; ++i) args.src_strides.step[i] /= 2, args.dst_strides.step[i] /= 2;
  return true;
}

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
  if (numel(args.shape) == 0) return;
  CopyAxes axes(args);
  if (axes.transposed()) return launch_transposed(args, axes);
  CopyStridedArgs copy = axes.copy_like(args);
  int64_t bits = dtype_bits(args.dtype);
  while (bits < kWidest && pair_up(copy, bits)) bits *= 2;
  launch("move", message("copy_strided_", bits), threads_for(numel(copy.shape)), Threads{kViewThreads}, 0,
         copy);
}

void gather(const GatherArgs& args) {
  launch("move", kernel_of_size("gather", args.dtype), threads_sharing(numel(args.indexing.shape)),
         Threads{kViewThreads}, 0, args);
}

}  // namespace spark::cuda
