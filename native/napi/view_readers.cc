#include <string>

#include "core/error.h"
#include "napi/readers.h"

namespace spark::napi {
namespace {

template <typename Fn, size_t Count>
Fn function_named(const Arguments& in, const char* const (&names)[Count]) {
  const std::string name = in.text("fn");
  for (size_t i = 0; i < Count; ++i) {
    if (name == names[i]) return static_cast<Fn>(i);
  }
  throw Error("ERR_UNSUPPORTED", message("there is no function called '", name, "'"));
}

// In the order of the enums in backend.h.
constexpr const char* kUnary[] = {"abs",  "neg",     "reciprocal", "sqrt", "exp",       "log", "erf",
                                  "tanh", "sigmoid", "relu",       "gelu", "gelu_tanh", "silu"};
constexpr const char* kBinary[] = {
    "add", "sub", "mul", "div", "pow", "max", "min", "relu_grad", "gelu_grad", "gelu_tanh_grad", "silu_grad"};
constexpr const char* kReduce[] = {"sum", "mean", "max", "min", "prod", "sum_square"};

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

int64_t volume(const Axes& axes) {
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
    if (volume(axes) == 0) return 0;
    reach.extend(axes, strides);
  }
  if (reach.low < 0) throw Error("ERR_SHAPE", message(name, " would be left at its beginning"));
  return reach.high + 1;
}

constexpr const char* kPool[] = {"max", "average"};

Windows windows(const Arguments& in) {
  Windows windows{};
  windows.planes = in.size("planes");
  in.axes("image", 0, 1, windows.image);
  in.axes("kernel", 1, 1, windows.kernel);
  in.axes("out", 0, 1, windows.out);
  in.axes("strides", 1, 1, windows.stride);
  in.axes("dilations", 1, 1, windows.dilation);
  in.axes("padsBegin", 0, 0, windows.pad);
  in.axes("padsEnd", 0, 0, windows.pad_end);
  return windows;
}

// Elements of [planes, sizes].
int64_t elements_of(const Windows& windows, const int64_t (&sizes)[3]) {
  return elements(windows.planes, sizes[0], sizes[1], sizes[2]);
}

}  // namespace

UnaryArgs read_unary(Arguments& in) {
  UnaryArgs args{};
  args.fn = function_named<UnaryFn>(in, kUnary);
  args.dtype = in.dtype("dtype");
  args.count = in.size("count");
  args.x = in.input("x", args.dtype, args.count);
  args.y = in.output("y", args.dtype, args.count);
  return args;
}

BinaryArgs read_binary(Arguments& in) {
  BinaryArgs args{};
  args.fn = function_named<BinaryFn>(in, kBinary);
  args.dtype = in.dtype("dtype");
  args.shape = axes(in, "shape");
  args.a_strides = strides(in, "aStrides", args.shape);
  args.b_strides = strides(in, "bStrides", args.shape);
  args.a = in.input("a", args.dtype, needed("a", 0, {{args.shape, args.a_strides}}));
  args.b = in.input("b", args.dtype, needed("b", 0, {{args.shape, args.b_strides}}));
  args.y = in.output("y", args.dtype, volume(args.shape));
  return args;
}

ReduceArgs read_reduce(Arguments& in) {
  ReduceArgs args{};
  args.fn = function_named<ReduceFn>(in, kReduce);
  args.dtype = in.dtype("dtype");
  args.shape = axes(in, "shape");
  args.reduced = axes(in, "reduced");
  args.strides = strides(in, "strides", args.shape);
  args.reduced_strides = strides(in, "reducedStrides", args.reduced);
  args.x = in.input("x", args.dtype,
                    needed("x", 0, {{args.shape, args.strides}, {args.reduced, args.reduced_strides}}));
  args.y = in.output("y", args.dtype, volume(args.shape));
  return args;
}

CopyStridedArgs read_copy_strided(Arguments& in) {
  constexpr int64_t kSmallest = -9007199254740991;
  CopyStridedArgs args{};
  args.dtype = in.dtype("dtype");
  if (args.dtype == DType::kNVFP4) throw Error("ERR_DTYPE", "nvfp4 has no elements to copy one by one");
  args.shape = axes(in, "shape");
  args.src_offset = in.size("srcOffset");
  args.dst_offset = in.size("dstOffset");
  args.src_strides = strides(in, "srcStrides", args.shape, kSmallest);
  args.dst_strides = strides(in, "dstStrides", args.shape, kSmallest);
  args.src = in.input("src", args.dtype, needed("src", args.src_offset, {{args.shape, args.src_strides}}));
  args.dst = in.output("dst", args.dtype, needed("dst", args.dst_offset, {{args.shape, args.dst_strides}}));
  return args;
}

PoolArgs read_pool(Arguments& in) {
  PoolArgs args{};
  args.fn = function_named<PoolFn>(in, kPool);
  args.dtype = in.dtype("dtype");
  args.windows = windows(in);
  args.count_pad = in.flag("countPad");
  args.x = in.input("x", args.dtype, elements_of(args.windows, args.windows.image));
  args.y = in.output("y", args.dtype, elements_of(args.windows, args.windows.out));
  return args;
}

PoolBackwardArgs read_pool_backward(Arguments& in) {
  PoolBackwardArgs args{};
  args.fn = function_named<PoolFn>(in, kPool);
  args.dtype = in.dtype("dtype");
  args.windows = windows(in);
  args.count_pad = in.flag("countPad");
  const int64_t image = elements_of(args.windows, args.windows.image);
  if (args.fn == PoolFn::kMax) args.x = in.input("x", args.dtype, image);
  args.dy = in.input("dy", args.dtype, elements_of(args.windows, args.windows.out));
  args.dx = in.output("dx", args.dtype, image);
  return args;
}

}  // namespace spark::napi
