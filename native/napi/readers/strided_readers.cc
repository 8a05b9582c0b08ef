// strided_readers.cc: argument readers of operations on strided operands.
#include <string>
#include <vector>

#include "core/error.h"
#include "napi/readers/readers.h"

namespace spark::napi {
namespace {

constexpr std::initializer_list<const char*> kReduce = {"sum",  "mean",       "max",    "min",
                                                        "prod", "sum_square", "sum_abs"};

Axes axes(const Arguments& in, const char* name) {
  const std::vector<int64_t> sizes = in.integers(name, 0);
  if (sizes.size() > kMaxAxes) {
    throw Error("ERR_SHAPE", message(name, " has ", sizes.size(), " axes, more than ", kMaxAxes));
  }
  Axes axes{static_cast<int64_t>(sizes.size()), {}};
  std::copy(sizes.begin(), sizes.end(), axes.size);
  return axes;
}

Strides strides(const Arguments& in, const char* name, const Axes& axes, int64_t smallest = 0) {
  const std::vector<int64_t> steps = in.integers(name, smallest);
  if (static_cast<int64_t>(steps.size()) != axes.count) {
    throw Error("ERR_SHAPE", message(name, " has ", steps.size(), " entries for ", axes.count, " axes"));
  }
  Strides strides{};
  std::copy(steps.begin(), steps.end(), strides.step);
  return strides;
}

int64_t checked_numel(const Axes& axes) {
  int64_t product = 1;
  for (int64_t i = 0; i < axes.count; ++i) product = elements(product, axes.size[i]);
  return product;
}

// The indices that a loop reaches in an operand, from the one at `low` on.
struct Reach {
  int64_t low, high;

  void extend(const Axes& axes, const Strides& strides) {
    for (int64_t i = 0; i < axes.count; ++i) {
      int64_t far;
      int64_t& end = strides.step[i] < 0 ? low : high;
      if (__builtin_mul_overflow(axes.size[i] - 1, strides.step[i], &far) ||
          __builtin_add_overflow(end, far, &end)) {
        throw Error("ERR_SHAPE", "strides leave the address space");
      }
    }
  }
};

// Elements an operand must have so that a loop from `offset` on stays inside; none without an iteration.
int64_t needed(const char* name, int64_t offset,
               std::initializer_list<std::pair<const Axes&, const Strides&>> loops) {
  Reach reach{offset, offset};
  for (const auto& [axes, strides] : loops) {
    if (checked_numel(axes) == 0) return 0;
    reach.extend(axes, strides);
  }
  if (reach.low < 0) throw Error("ERR_SHAPE", message(name, " would be left at its beginning"));
  return reach.high + 1;
}

// Its elements are inside: needed() has been asked.
Footprint touched(int64_t offset, const Axes& axes, const Strides& strides) {
  Footprint::Axis each[kMaxAxes];
  for (int64_t i = 0; i < axes.count; ++i) each[i] = {axes.size[i], strides.step[i]};
  return {offset, std::span(each, static_cast<size_t>(axes.count))};
}

DType copied_dtype(const Arguments& in) {
  const DType dtype = in.dtype("dtype");
  if (dtype == DType::kNVFP4) throw Error("ERR_DTYPE", "nvfp4 has no elements to move one by one");
  return dtype;
}

// The indexing, and the elements that the indexed tensor must have.
struct IndexingRead {
  Indexing indexing;
  int64_t needed;
};

IndexingRead read_indexing(Arguments& in) {
  Indexing indexing{};
  indexing.shape = axes(in, "shape");
  indexing.strides = strides(in, "strides", indexing.shape);
  indexing.index_strides = strides(in, "indexStrides", indexing.shape);
  const Axes steps = axes(in, "steps"), limits = axes(in, "limits");
  if (steps.count != limits.count) {
    throw Error("ERR_SHAPE", message("there are ", steps.count, " steps and ", limits.count, " limits"));
  }
  indexing.components = steps.count;
  const bool empty = checked_numel(indexing.shape) == 0;
  Strides reach{};
  for (int64_t d = 0; d < steps.count; ++d) {
    if (limits.size[d] == 0 && !empty) throw Error("ERR_SHAPE", message("limits[", d, "] is 0"));
    indexing.steps[d] = reach.step[d] = steps.size[d];
    indexing.limits[d] = limits.size[d];
  }
  const int64_t last = empty ? 0 : needed("indices", 0, {{indexing.shape, indexing.index_strides}});
  indexing.indices = in.input<int64_t>("indices", empty || steps.count == 0 ? 0 : last + steps.count - 1);
  return {indexing, empty ? 0 : needed("x", 0, {{indexing.shape, indexing.strides}, {limits, reach}})};
}

}  // namespace

UnaryFn unary_fn(const Arguments& in) { return in.choice<UnaryFn>("fn", kUnaryNames); }

UnaryArgs read_unary(Arguments& in) {
  UnaryArgs args{};
  args.fn = unary_fn(in);
  args.dtype = in.dtype("dtype");
  args.count = in.size("count");
  args.alpha = in.optional_number("alpha", 0);
  args.beta = in.optional_number("beta", 0);
  args.x = in.input("x", args.dtype, args.count);
  args.y = in.output("y", returns_bool(args.fn) ? DType::kBool : args.dtype, args.count);
  return args;
}

BinaryArgs read_binary(Arguments& in) {
  BinaryArgs args{};
  args.fn = in.choice<BinaryFn>("fn", kBinaryNames);
  args.dtype = in.dtype("dtype");
  args.shape = axes(in, "shape");
  args.a_strides = strides(in, "aStrides", args.shape);
  args.b_strides = strides(in, "bStrides", args.shape);
  args.a = in.input("a", args.dtype, needed("a", 0, {{args.shape, args.a_strides}}));
  args.b = in.input("b", args.dtype, needed("b", 0, {{args.shape, args.b_strides}}));
  args.y = in.output("y", returns_bool(args.fn) ? DType::kBool : args.dtype, checked_numel(args.shape));
  return args;
}

SelectArgs read_select(Arguments& in) {
  SelectArgs args{};
  args.dtype = in.dtype("dtype");
  args.shape = axes(in, "shape");
  args.condition_strides = strides(in, "conditionStrides", args.shape);
  args.a_strides = strides(in, "aStrides", args.shape);
  args.b_strides = strides(in, "bStrides", args.shape);
  args.condition =
      in.input<uint8_t>("condition", needed("condition", 0, {{args.shape, args.condition_strides}}));
  args.a = in.input("a", args.dtype, needed("a", 0, {{args.shape, args.a_strides}}));
  args.b = in.input("b", args.dtype, needed("b", 0, {{args.shape, args.b_strides}}));
  args.y = in.output("y", args.dtype, checked_numel(args.shape));
  return args;
}

ReduceArgs read_reduce(Arguments& in) {
  ReduceArgs args{};
  args.fn = in.choice<ReduceFn>("fn", kReduce);
  args.dtype = in.dtype("dtype");
  args.shape = axes(in, "shape");
  args.reduced = axes(in, "reduced");
  args.strides = strides(in, "strides", args.shape);
  args.reduced_strides = strides(in, "reducedStrides", args.reduced);
  args.x = in.input("x", args.dtype,
                    needed("x", 0, {{args.shape, args.strides}, {args.reduced, args.reduced_strides}}));
  args.y = in.output("y", args.dtype, checked_numel(args.shape));
  return args;
}

CopyStridedArgs read_copy_strided(Arguments& in) {
  constexpr int64_t kSmallest = -9007199254740991;
  CopyStridedArgs args{};
  args.dtype = copied_dtype(in);
  args.shape = axes(in, "shape");
  args.src_offset = in.size("srcOffset");
  args.dst_offset = in.size("dstOffset");
  args.src_strides = strides(in, "srcStrides", args.shape, kSmallest);
  args.dst_strides = strides(in, "dstStrides", args.shape, kSmallest);
  needed("src", args.src_offset, {{args.shape, args.src_strides}});
  needed("dst", args.dst_offset, {{args.shape, args.dst_strides}});
  args.src = in.input("src", args.dtype, touched(args.src_offset, args.shape, args.src_strides));
  args.dst = in.output("dst", args.dtype, touched(args.dst_offset, args.shape, args.dst_strides));
  return args;
}

CumulateArgs read_cumulate(Arguments& in) {
  CumulateArgs args{};
  args.fn = in.choice<CumulateFn>("fn", {"sum", "prod"});
  args.dtype = in.dtype("dtype");
  args.outer = in.size("outer");
  args.size = in.size("size");
  args.inner = in.size("inner");
  args.exclusive = in.flag("exclusive");
  args.reverse = in.flag("reverse");
  const int64_t count = elements(args.outer, args.size, args.inner);
  args.x = in.input("x", args.dtype, count);
  args.y = in.output("y", args.dtype, count);
  return args;
}

TopKArgs read_top_k(Arguments& in) {
  TopKArgs args{};
  args.dtype = in.dtype("dtype");
  args.outer = in.size("outer");
  args.size = in.size("size");
  args.inner = in.size("inner");
  args.k = in.size("k");
  if (args.k > args.size) throw Error("ERR_SHAPE", message("k is ", args.k, ", but size is ", args.size));
  args.largest = in.flag("largest");
  args.last_first = in.flag("lastFirst");
  const int64_t results = elements(args.outer, args.k, args.inner);
  args.x = in.input("x", args.dtype, elements(args.outer, args.size, args.inner));
  args.values = in.optional_output("values", args.dtype, results);
  args.indices = in.output<int64_t>("indices", results);
  return args;
}

GatherArgs read_gather(Arguments& in) {
  GatherArgs args{};
  args.dtype = copied_dtype(in);
  const IndexingRead read = read_indexing(in);
  args.indexing = read.indexing;
  args.x = in.input("x", args.dtype, read.needed);
  args.y = in.output("y", args.dtype, checked_numel(args.indexing.shape));
  return args;
}

ScatterArgs read_scatter(Arguments& in) {
  ScatterArgs args{};
  args.fn = in.choice<ScatterFn>("fn", {"assign", "add", "mul", "max", "min"});
  args.dtype = copied_dtype(in);
  const IndexingRead read = read_indexing(in);
  args.indexing = read.indexing;
  args.updates = in.input("updates", args.dtype, checked_numel(args.indexing.shape));
  args.y = in.update("y", args.dtype, read.needed);
  return args;
}

}  // namespace spark::napi
