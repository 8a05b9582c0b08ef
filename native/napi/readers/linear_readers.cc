// linear_readers.cc: argument readers of linear layers and matmul.
#include <array>
#include <cmath>

#include "core/error.h"
#include "napi/readers/readers.h"

namespace spark::napi {
namespace {

// Elements from the first to the last one of an array with these sizes and strides; 0 where a size is.
int64_t extent(std::array<int64_t, 4> sizes, std::array<int64_t, 4> strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    if (__builtin_add_overflow(last, elements(sizes[i] - 1, strides[i]), &last)) elements(last, INT64_MAX);
  }
  return last + 1;
}

Matrices read_matrices(Arguments& in, const char* name, const char* strides_name,
                       std::array<int64_t, 4> sizes) {
  const std::array<int64_t, 4> strides = in.strides(strides_name);
  if (sizes[2] > 1 && sizes[3] > 1 && strides[2] != 1 && strides[3] != 1) {
    throw Error("ERR_SHAPE", message(strides_name, " has neither adjacent rows nor adjacent columns: ",
                                     strides[2], " and ", strides[3]));
  }
  return {in.input<float>(name, extent(sizes, strides)), strides[0], strides[1], strides[2], strides[3]};
}

// Refuses x in other numbers, or other rows, than the product would make of it.
void expect_rounded(const LinearArgs& args) {
  const bool same = args.compute == (args.x_dtype == FloatType::kBF16 ? Compute::kBF16 : Compute::kF16);
  if (args.x_dtype == FloatType::kF32 || (same && args.weight.cols % kDepthUnit == 0)) return;
  throw Error("ERR_SHAPE", message("xDtype ", dtype_name(dtype_of(args.x_dtype)),
                                   " is for products in it, of ", kDepthUnit, " · n columns"));
}

// Whether `name`, rows that are rounded to NVFP4 for products, is given; refuses it where there are none.
bool has_rounded(const Arguments& in, const char* name, int64_t cols, const LinearArgs& args) {
  if (!in.has(name)) return false;
  expect_rounded_rows(in, name, cols);
  if (args.compute == Compute::kNVFP4) return true;
  throw Error("ERR_SHAPE", message(name, " in nvfp4 is for products in it"));
}

// x, and where its rounded rows are wanted.
void read_rows(Arguments& in, LinearArgs& args) {
  const int64_t count = elements(args.tokens, args.weight.cols);
  args.takes_rounded =
      in.has("xDtype") && in.text("xDtype") == "nvfp4" && has_rounded(in, "xDtype", args.weight.cols, args);
  if (args.takes_rounded) {
    args.x = in.input("x", DType::kBF16, count);
    return;
  }
  args.x_dtype = read_float_type(in, "xDtype");
  expect_rounded(args);
  args.x = in.input("x", dtype_of(args.x_dtype), count);
  if (has_rounded(in, "xRounded", args.weight.cols, args)) {
    args.x_rounded = static_cast<uint16_t*>(in.output("xRounded", DType::kBF16, count));
  }
  args.x_scale = read_tensor_scale(in, "xScale");
}

// y, and where its rounded rows are wanted.
void read_results(Arguments& in, LinearArgs& args) {
  const int64_t rows = args.weight.rows, count = elements(args.tokens, rows);
  args.y_dtype = read_float_type(in, "yDtype");
  if (!has_rounded(in, "yRounded", rows, args)) {
    args.y = in.output("y", dtype_of(args.y_dtype), count);
    return;
  }
  args.y_scale = read_tensor_scale(in, "yScale");
  if (args.y_scale == 0 || args.y_dtype != FloatType::kF32) {
    throw Error("ERR_ARGUMENT", "yRounded is for a yScale and y in f32");
  }
  args.y_rounded = static_cast<uint16_t*>(in.output("yRounded", DType::kBF16, count));
  args.y = in.optional_output<float>("y", count);
}

}  // namespace

FloatType read_float_type(const Arguments& in, const char* name) {
  const auto type = in.choice<FloatType>(name, {"f32", "bf16", "f16"});
  if (type == FloatType::kF32 || in.placed()) return type;
  throw Error("ERR_UNSUPPORTED", message(name, " ", in.text(name), " is for CUDA. Use f32"));
}

float read_tensor_scale(const Arguments& in, const char* name) {
  if (!in.has(name)) return 0;
  const auto scale = static_cast<float>(in.number(name));
  int exponent;
  if (scale > 0 && std::isfinite(scale) && std::frexp(scale, &exponent) == 0.5f) return scale;
  throw Error("ERR_ARGUMENT", message(name, " is ", in.number(name), ", not a power of two"));
}

void expect_rounded_rows(const Arguments& in, const char* name, int64_t cols) {
  if (!in.placed()) throw Error("ERR_UNSUPPORTED", message(name, " in nvfp4 is for CUDA"));
  if (cols % kRoundedUnit == 0) return;
  throw Error("ERR_SHAPE", message(name, " in nvfp4 is for rows of ", kRoundedUnit, " · n columns"));
}

LinearArgs read_linear(Arguments& in) {
  LinearArgs args{};
  args.weight = in.stored_weight("weight");
  args.tokens = in.size("tokens");
  const int64_t rows = args.weight.rows;
  args.compute = in.compute("compute", args.weight);
  read_rows(in, args);
  args.row_scale = in.optional_input<float>("rowScale", rows);
  args.bias = in.optional_input<float>("bias", rows);
  args.residual = in.optional_input<float>("residual", elements(args.tokens, rows));
  args.gate = in.optional_input<float>("gate", elements(args.tokens, rows));
  args.activation = in.activation("activation");
  read_results(in, args);
  return args;
}

ExpertLinearArgs read_expert_linear(Arguments& in) {
  ExpertLinearArgs args{};
  args.weight = in.stored_weight("weight");
  args.experts = in.size("experts");
  args.tokens = in.size("tokens");
  args.choices = in.size("choices");
  const int64_t rows = args.weight.rows;
  if (args.experts == 0 || rows % args.experts != 0) {
    throw Error("ERR_SHAPE", message("weight.rows is ", rows, ", not a multiple of experts, ", args.experts));
  }
  args.per_choice = in.flag("perChoice");
  const int64_t count = elements(args.tokens, args.choices);
  args.x = in.input<float>("x", elements(args.per_choice ? count : args.tokens, args.weight.cols));
  args.choice = in.input<int64_t>("choice", count);
  args.bias = in.optional_input<float>("bias", rows);
  args.y = in.output<float>("y", elements(count, rows / args.experts));
  return args;
}

GatherRowsArgs read_gather_rows(Arguments& in) {
  GatherRowsArgs args{};
  args.weight = in.stored_weight("weight");
  args.count = in.size("count");
  args.indices = in.input<int64_t>("indices", args.count);
  args.y = in.output<float>("y", elements(args.count, args.weight.cols));
  return args;
}

MatmulArgs read_matmul(Arguments& in) {
  MatmulArgs args{};
  args.outer = in.size("outer");
  args.inner = in.size("inner");
  args.m = in.size("m");
  args.n = in.size("n");
  args.k = in.size("k");
  args.alpha = in.number("alpha");
  args.a = read_matrices(in, "a", "aStrides", {args.outer, args.inner, args.m, args.k});
  args.b = read_matrices(in, "b", "bStrides", {args.outer, args.inner, args.k, args.n});
  const std::array<int64_t, 4> strides = in.strides("yStrides");
  if (strides[3] != 1) throw Error("ERR_SHAPE", message("yStrides[3] is ", strides[3], ", not 1"));
  args.y_outer = strides[0];
  args.y_inner = strides[1];
  args.y_row = strides[2];
  const std::array<int64_t, 4> sizes{args.outer, args.inner, args.m, args.n};
  extent(sizes, strides);  // refuses what leaves the address space
  Footprint::Axis axes[4];
  for (size_t i = 0; i < sizes.size(); ++i) axes[i] = {sizes[i], strides[i]};
  args.y = in.output<float>("y", Footprint(0, axes));
  args.compute = in.choice<Compute>("compute", {"f32", "bf16", "f16"});
  return args;
}

LinearBackwardArgs read_linear_backward(Arguments& in) {
  LinearBackwardArgs args{};
  args.weight = in.stored_weight("weight");
  args.tokens = in.size("tokens");
  args.x = in.input<float>("x", elements(args.tokens, args.weight.cols));
  args.dy = in.input<float>("dy", elements(args.tokens, args.weight.rows));
  args.dx = in.optional_output<float>("dx", elements(args.tokens, args.weight.cols));
  args.dweight = in.optional_output<float>("dweight", elements(args.weight.rows, args.weight.cols));
  args.dbias = in.optional_output<float>("dbias", args.weight.rows);
  args.compute = in.plain_compute("compute", args.weight);
  return args;
}

}  // namespace spark::napi
