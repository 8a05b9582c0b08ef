#include "napi/kernels.h"

#include <functional>
#include <string>

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/device.h"
#include "core/cpu_isa.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "napi/arguments.h"
#include "napi/cuda_call.h"
#include "napi/job.h"

namespace spark::napi {
namespace {

// A reader turns the JavaScript object of one operation into its Args. Field names are those of
// lib/runtime/kernels.ts.

CastArgs read_cast(Arguments& in) {
  CastArgs args{};
  args.src_dtype = in.dtype("srcDtype");
  args.dst_dtype = in.dtype("dstDtype");
  args.count = in.size("count");
  args.saturate = in.flag("saturate");
  args.src = in.input("src", args.src_dtype, args.count);
  args.dst = in.output("dst", args.dst_dtype, args.count);
  return args;
}

AmaxArgs read_amax(Arguments& in) {
  AmaxArgs args{};
  args.dtype = in.dtype("dtype");
  args.count = in.size("count");
  args.src = in.input("src", args.dtype, args.count);
  args.out = in.output<float>("out", 1);
  return args;
}

Nvfp4QuantizeArgs read_nvfp4_quantize(Arguments& in) {
  Nvfp4QuantizeArgs args{};
  args.src_dtype = in.dtype("srcDtype");
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.recipe = in.nvfp4_recipe("recipe");
  args.tensor_scale = in.number("tensorScale");
  if (args.recipe == Nvfp4Recipe::kTe) args.encode_scale = in.number("encodeScale");
  if (args.cols % 16 != 0) throw Error("ERR_SHAPE", message("cols is ", args.cols, ", not a multiple of 16"));
  args.src = in.input("src", args.src_dtype, elements(args.rows, args.cols));
  args.packed = in.output<uint8_t>("packed", elements(args.rows, args.cols) / 2);
  args.block_scale = in.output<uint8_t>("blockScale", elements(args.rows, args.cols) / 16);
  return args;
}

Nvfp4DequantizeArgs read_nvfp4_dequantize(Arguments& in) {
  Nvfp4DequantizeArgs args{};
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.tensor_scale = in.number("tensorScale");
  if (args.cols % 16 != 0) throw Error("ERR_SHAPE", message("cols is ", args.cols, ", not a multiple of 16"));
  args.packed = in.input<uint8_t>("packed", elements(args.rows, args.cols) / 2);
  args.block_scale = in.input<uint8_t>("blockScale", elements(args.rows, args.cols) / 16);
  args.dst = in.output<float>("dst", elements(args.rows, args.cols));
  return args;
}

Fp8QuantizeArgs read_fp8_quantize(Arguments& in) {
  Fp8QuantizeArgs args{};
  args.src_dtype = in.dtype("srcDtype");
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.block_rows = in.size("blockRows");
  args.block_cols = in.size("blockCols");
  if (args.block_rows < 1 || args.block_cols < 1) {
    throw Error("ERR_SHAPE", message("a block of ", args.block_rows, " x ", args.block_cols, " is empty"));
  }
  const int64_t down = args.rows / args.block_rows + (args.rows % args.block_rows != 0);
  const int64_t across = args.cols / args.block_cols + (args.cols % args.block_cols != 0);
  args.src = in.input("src", args.src_dtype, elements(args.rows, args.cols));
  args.codes = in.output<uint8_t>("codes", elements(args.rows, args.cols));
  args.scale = in.output<float>("scale", elements(down, across));
  return args;
}

PackWeightArgs read_pack_weight(Arguments& in) {
  PackWeightArgs args{};
  args.weight = in.weight("weight");
  if (args.weight.packed) throw Error("ERR_ARGUMENT", "weight is packed already");
  Weight packed = args.weight;
  packed.packed = true;
  const WeightSize size = weight_size(packed);
  args.data = in.output("data", packed.dtype, size.data);
  if (packed.dtype == DType::kNVFP4) args.block_scale = in.output<uint8_t>("blockScale", size.block_scale);
  return args;
}

LinearArgs read_linear(Arguments& in) {
  LinearArgs args{};
  args.weight = in.weight("weight");
  args.tokens = in.size("tokens");
  const int64_t rows = args.weight.rows;
  args.x = in.input<float>("x", elements(args.tokens, args.weight.cols));
  args.row_scale = in.optional_input<float>("rowScale", rows);
  args.bias = in.optional_input<float>("bias", rows);
  args.residual = in.optional_input<float>("residual", elements(args.tokens, rows));
  args.activation = in.activation("activation");
  args.compute = in.compute("compute");
  args.y = in.output<float>("y", elements(args.tokens, rows));
  return args;
}

LinearIntegerArgs read_linear_integer(Arguments& in) {
  LinearIntegerArgs args{};
  args.tokens = in.size("tokens");
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.x_signed = in.flag("xSigned");
  args.w_signed = in.flag("wSigned");
  const auto codes = [&](const char* name, bool is_signed, int64_t count) -> const void* {
    if (is_signed) return in.input<int8_t>(name, count);
    return in.input<uint8_t>(name, count);
  };
  args.x = codes("x", args.x_signed, elements(args.tokens, args.cols));
  args.w = codes("w", args.w_signed, elements(args.rows, args.cols));
  args.x_zero = in.optional_input<int32_t>("xZero", args.tokens);
  args.w_zero = in.optional_input<int32_t>("wZero", args.rows);
  args.y = in.output<int32_t>("y", elements(args.tokens, args.rows));
  return args;
}

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
  args.y = in.output<float>("y", extent({args.outer, args.inner, args.m, args.n}, strides));
  return args;
}

LinearBackwardArgs read_linear_backward(Arguments& in) {
  LinearBackwardArgs args{};
  args.weight = in.weight("weight");
  args.tokens = in.size("tokens");
  args.x = in.input<float>("x", elements(args.tokens, args.weight.cols));
  args.dy = in.input<float>("dy", elements(args.tokens, args.weight.rows));
  args.dx = in.optional_output<float>("dx", elements(args.tokens, args.weight.cols));
  args.dweight = in.optional_output<float>("dweight", elements(args.weight.rows, args.weight.cols));
  args.dbias = in.optional_output<float>("dbias", args.weight.rows);
  args.compute = in.compute("compute");
  return args;
}

// Elements of an activation [N, channels, sizes].
int64_t image_elements(const ConvShape& shape, int64_t channels, const int64_t (&sizes)[3]) {
  return elements(shape.batch, channels, sizes[0], sizes[1], sizes[2]);
}

ConvArgs read_conv(Arguments& in) {
  ConvArgs args{};
  args.weight = in.weight("weight");
  const ConvShape& shape = args.shape = in.conv_shape(args.weight);
  args.x = in.input<float>("x", image_elements(shape, shape.channels, shape.image));
  const int64_t positions = image_elements(shape, shape.filters, shape.out);
  args.bias = in.optional_input<float>("bias", shape.filters);
  args.residual = in.optional_input<float>("residual", positions);
  args.residual_first = in.flag("residualFirst");
  args.activation = in.activation("activation");
  args.y = in.output<float>("y", positions);
  return args;
}

ConvBackwardArgs read_conv_backward(Arguments& in) {
  ConvBackwardArgs args{};
  args.weight = in.weight("weight");
  const ConvShape& shape = args.shape = in.conv_shape(args.weight);
  const int64_t pixels = image_elements(shape, shape.channels, shape.image);
  args.dweight = in.optional_output<float>("dweight", elements(args.weight.rows, args.weight.cols));
  args.x = args.dweight ? in.input<float>("x", pixels) : in.optional_input<float>("x", pixels);
  args.dy = in.input<float>("dy", image_elements(shape, shape.filters, shape.out));
  args.dx = in.optional_output<float>("dx", pixels);
  args.dbias = in.optional_output<float>("dbias", shape.filters);
  return args;
}

ConvTransposeArgs read_conv_transpose(Arguments& in) {
  ConvTransposeArgs args{};
  args.weight = in.weight("weight");
  const ConvShape& shape = args.shape = in.conv_shape(args.weight);
  args.x = in.input<float>("x", image_elements(shape, shape.filters, shape.out));
  args.bias = in.optional_input<float>("bias", shape.channels);
  args.y = in.output<float>("y", image_elements(shape, shape.channels, shape.image));
  return args;
}

WeightNorm2Args read_weight_norm2(Arguments& in) {
  WeightNorm2Args args{};
  args.weight = in.weight("weight");
  args.out = in.output<float>("out", args.weight.rows);
  return args;
}

DoraNormArgs read_dora_norm(Arguments& in) {
  DoraNormArgs args{};
  args.weight = in.weight("weight");
  args.low_rank = in.low_rank(args.weight.rows, args.weight.cols);
  args.weight_norm2 = in.input<float>("weightNorm2", args.weight.rows);
  args.magnitude = in.input<float>("magnitude", args.weight.rows);
  args.norm = in.output<float>("norm", args.weight.rows);
  args.gain = in.output<float>("gain", args.weight.rows);
  return args;
}

DoraForwardArgs read_dora_forward(Arguments& in) {
  DoraForwardArgs args{};
  args.weight = in.weight("weight");
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  args.low_rank = in.low_rank(rows, cols);
  args.tokens = in.size("tokens");
  args.x = in.input<float>("x", elements(args.tokens, cols));
  args.gain = in.input<float>("gain", rows);
  args.bias = in.optional_input<float>("bias", rows);
  args.mask = in.optional_input<float>("mask", elements(args.tokens, cols));
  args.xa = in.output<float>("xa", elements(args.tokens, args.low_rank.rank));
  args.z = in.optional_output<float>("z", elements(args.tokens, rows));
  args.y = in.output<float>("y", elements(args.tokens, rows));
  args.compute = in.compute("compute");
  return args;
}

DoraMixedArgs read_dora_mixed(Arguments& in) {
  DoraMixedArgs args{};
  args.weight = in.weight("weight");
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  args.tokens = in.size("tokens");
  args.x = in.input<float>("x", elements(args.tokens, cols));
  args.count = in.each("adapters", kMaxMixedAdapters, [&](int64_t i) {
    args.adapters[i] = {in.low_rank(rows, cols), in.input<float>("gain", rows)};
  });
  args.index = in.input<int32_t>("index", args.tokens);
  const int32_t* index = in.values<int32_t>("index", args.tokens);
  for (int64_t t = 0; t < args.tokens; ++t) {
    if (index[t] >= -1 && index[t] < args.count) continue;
    throw Error("ERR_ARGUMENT",
                message("index[", t, "] is ", index[t], "; there are ", args.count, " adapters"));
  }
  args.bias = in.optional_input<float>("bias", rows);
  args.y = in.output<float>("y", elements(args.tokens, rows));
  return args;
}

DoraBackwardArgs read_dora_backward(Arguments& in) {
  DoraBackwardArgs args{};
  args.weight = in.weight("weight");
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  args.low_rank = in.low_rank(rows, cols);
  args.tokens = in.size("tokens");
  args.exact_norm = in.flag("exactNorm");
  args.x = in.input<float>("x", elements(args.tokens, cols));
  args.mask = in.optional_input<float>("mask", elements(args.tokens, cols));
  args.dy = in.input<float>("dy", elements(args.tokens, rows));
  args.xa = in.input<float>("xa", elements(args.tokens, args.low_rank.rank));
  args.z = in.input<float>("z", elements(args.tokens, rows));
  args.norm = in.input<float>("norm", rows);
  args.gain = in.input<float>("gain", rows);
  args.magnitude = in.input<float>("magnitude", rows);
  args.dx = in.optional_output<float>("dx", elements(args.tokens, cols));
  args.da = in.output<float>("da", elements(args.low_rank.rank, cols));
  args.db = in.output<float>("db", elements(rows, args.low_rank.rank));
  args.dmagnitude = in.output<float>("dmagnitude", rows);
  args.dbias = in.optional_output<float>("dbias", rows);
  args.compute = in.compute("compute");
  return args;
}

DoraMergeArgs read_dora_merge(Arguments& in) {
  DoraMergeArgs args{};
  args.weight = in.weight("weight");
  args.low_rank = in.low_rank(args.weight.rows, args.weight.cols);
  args.gain = in.input<float>("gain", args.weight.rows);
  args.merged = in.output<float>("merged", elements(args.weight.rows, args.weight.cols));
  return args;
}

DoraUnmergeArgs read_dora_unmerge(Arguments& in) {
  DoraUnmergeArgs args{};
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.low_rank = in.low_rank(args.rows, args.cols);
  args.merged = in.input<float>("merged", elements(args.rows, args.cols));
  args.gain = in.input<float>("gain", args.rows);
  args.restored = in.output<float>("restored", elements(args.rows, args.cols));
  return args;
}

SoftmaxCrossEntropyArgs read_softmax_cross_entropy(Arguments& in) {
  SoftmaxCrossEntropyArgs args{};
  args.tokens = in.size("tokens");
  args.classes = in.size("classes");
  args.logits = in.input<float>("logits", elements(args.tokens, args.classes));
  args.labels = in.input<int32_t>("labels", args.tokens);
  args.loss = in.output<float>("loss", 1);
  args.dlogits = in.optional_output<float>("dlogits", elements(args.tokens, args.classes));
  const int32_t* labels = in.values<int32_t>("labels", args.tokens);
  for (int64_t t = 0; t < args.tokens; ++t) {
    if (labels[t] < 0 || labels[t] >= args.classes) {
      throw Error("ERR_ARGUMENT",
                  message("labels[", t, "] is ", labels[t], "; there are ", args.classes, " classes"));
    }
  }
  return args;
}

AdamwArgs read_adamw(Arguments& in) {
  AdamwArgs args{};
  args.count = in.size("count");
  args.step = in.size("step");
  args.lr = in.number("lr");
  args.beta1 = in.number("beta1");
  args.beta2 = in.number("beta2");
  args.eps = in.number("eps");
  args.weight_decay = in.number("weightDecay");
  args.grad = in.input<float>("grad", args.count);
  args.param = in.update<float>("param", args.count);
  args.m = in.update<float>("m", args.count);
  args.v = in.update<float>("v", args.count);
  return args;
}

using Work = std::function<void()>;

template <typename Args>
Work bind(const Backend& backend, const char* op, void (*entry)(const Args&), Args (*read)(Arguments&),
          Arguments& in) {
  if (!entry)
    throw Error("ERR_UNSUPPORTED", message("the ", backend.name, " backend has no kernel for ", op));
  return [entry, args = read(in)] { entry(args); };
}

struct Operation {
  const char* name;
  bool (*supported)(const Backend& backend);
  Work (*prepare)(const Backend& backend, Arguments& in);
};

#define SPARK_OPERATION(name, entry)                                       \
  {                                                                        \
    name, [](const Backend& backend) { return backend.entry != nullptr; }, \
        [](const Backend& backend, Arguments& in) {                        \
          return bind(backend, name, backend.entry, read_##entry, in);     \
        }                                                                  \
  }

const Operation kOperations[] = {
    SPARK_OPERATION("cast", cast),
    SPARK_OPERATION("amax", amax),
    SPARK_OPERATION("nvfp4Quantize", nvfp4_quantize),
    SPARK_OPERATION("nvfp4Dequantize", nvfp4_dequantize),
    SPARK_OPERATION("fp8Quantize", fp8_quantize),
    SPARK_OPERATION("packWeight", pack_weight),
    SPARK_OPERATION("linear", linear),
    SPARK_OPERATION("linearBackward", linear_backward),
    SPARK_OPERATION("conv", conv),
    SPARK_OPERATION("convBackward", conv_backward),
    SPARK_OPERATION("convTranspose", conv_transpose),
    SPARK_OPERATION("linearInteger", linear_integer),
    SPARK_OPERATION("matmul", matmul),
    SPARK_OPERATION("weightNorm2", weight_norm2),
    SPARK_OPERATION("doraNorm", dora_norm),
    SPARK_OPERATION("doraForward", dora_forward),
    SPARK_OPERATION("doraMixed", dora_mixed),
    SPARK_OPERATION("doraBackward", dora_backward),
    SPARK_OPERATION("doraMerge", dora_merge),
    SPARK_OPERATION("doraUnmerge", dora_unmerge),
    SPARK_OPERATION("softmaxCrossEntropy", softmax_cross_entropy),
    SPARK_OPERATION("adamw", adamw),
};
#undef SPARK_OPERATION

const Operation& operation_named(const std::string& name) {
  for (const Operation& operation : kOperations) {
    if (name == operation.name) return operation;
  }
  throw Error("ERR_UNSUPPORTED", message("there is no operation called '", name, "'"));
}

}  // namespace

Napi::Value run_sync(const Napi::CallbackInfo& info) {
  Arguments in(info[1].As<Napi::Object>());
  operation_named(info[0].ToString()).prepare(cpu::backend(), in)();
  return info.Env().Undefined();
}

Napi::Value run_async(const Napi::CallbackInfo& info) {
  Arguments in(info[1].As<Napi::Object>());
  Work work = operation_named(info[0].ToString()).prepare(cpu::backend(), in);
  return start_job(
      info.Env(), [work = std::move(work), blocks = in.take_blocks()] { work(); }, in.take_references());
}

Napi::Value open_device(const Napi::CallbackInfo& info) {
  const int ordinal = info[0].ToNumber().Int32Value();
  return start_job(info.Env(), [ordinal] { cuda::Device::open(ordinal).preload(); });
}

Napi::Value run_cuda(const Napi::CallbackInfo& info) {
  cuda::Device& device = cuda::Device::get(info[0].ToNumber().Int32Value());
  cuda::DeviceScope scope(device);
  CudaCall call(info.Env(), device);
  Arguments in(info[2].As<Napi::Object>(), call.place());
  const Work work = operation_named(info[1].ToString()).prepare(cuda::backend(), in);
  return call.start(work, in.take_references());
}

Napi::Value supports(const Napi::CallbackInfo& info) {
  const Backend& backend = info[0].ToString().Utf8Value() == "cuda" ? cuda::backend() : cpu::backend();
  return Napi::Boolean::New(info.Env(), operation_named(info[1].ToString()).supported(backend));
}

Napi::Value set_threads(const Napi::CallbackInfo& info) {
  set_thread_count(info[0].As<Napi::Number>().Int32Value());
  return info.Env().Undefined();
}

Napi::Value cpu_isa(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), cpu_isa_name(spark::cpu_isa()));
}

}  // namespace spark::napi
