#include "napi/kernels.h"

#include <functional>
#include <string>

#include "backend/cpu/cpu.h"
#include "backend/cpu/lane_gemm.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/device.h"
#include "backend/cuda/fp4_test.h"
#include "backend/cuda/memory_speed.h"
#include "core/cpu_isa.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "napi/arguments.h"
#include "napi/cuda_call.h"
#include "napi/job.h"
#include "napi/network_readers.h"
#include "napi/operations.h"
#include "napi/readers.h"

namespace spark::napi {
namespace {

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

WinogradWeightArgs read_winograd_weight(Arguments& in) {
  WinogradWeightArgs args{};
  args.weight = in.weight("weight");
  if (args.weight.cols % 9 != 0) {
    throw Error("ERR_SHAPE", message("weight.cols is ", args.weight.cols, ", no multiple of 3 x 3"));
  }
  args.data = in.output<float>("data", winograd_elements(args.weight.rows, args.weight.cols / 9));
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
  args.compute = in.compute("compute", args.weight);
  args.y = in.output<float>("y", elements(args.tokens, rows));
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
  args.weight = in.weight("weight");
  args.tokens = in.size("tokens");
  args.x = in.input<float>("x", elements(args.tokens, args.weight.cols));
  args.dy = in.input<float>("dy", elements(args.tokens, args.weight.rows));
  args.dx = in.optional_output<float>("dx", elements(args.tokens, args.weight.cols));
  args.dweight = in.optional_output<float>("dweight", elements(args.weight.rows, args.weight.cols));
  args.dbias = in.optional_output<float>("dbias", args.weight.rows);
  args.compute = in.plain_compute("compute", args.weight);
  return args;
}

AdamwArgs read_adamw(Arguments& in) {
  AdamwArgs args{};
  args.count = in.size("count");
  args.step = in.scalar("step");
  args.lr = in.scalar("lr");
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
    SPARK_OPERATION("swizzleScales", swizzle_scales),
    SPARK_OPERATION("packWeight", pack_weight),
    SPARK_OPERATION("winogradWeight", winograd_weight),
    SPARK_OPERATION("linear", linear),
    SPARK_OPERATION("linearBackward", linear_backward),
    SPARK_OPERATION("conv", conv),
    SPARK_OPERATION("convBackward", conv_backward),
    SPARK_OPERATION("convTranspose", conv_transpose),
    SPARK_OPERATION("linearInteger", linear_integer),
    SPARK_OPERATION("convInteger", conv_integer),
    SPARK_OPERATION("quantize", quantize),
    SPARK_OPERATION("dequantize", dequantize),
    SPARK_OPERATION("lookup", lookup),
    SPARK_OPERATION("binaryBytes", binary_bytes),
    SPARK_OPERATION("meanBytes", mean_bytes),
    SPARK_OPERATION("matmul", matmul),
    SPARK_OPERATION("weightNorm2", weight_norm2),
    SPARK_OPERATION("doraNorm", dora_norm),
    SPARK_OPERATION("doraForward", dora_forward),
    SPARK_OPERATION("doraMixed", dora_mixed),
    SPARK_OPERATION("doraBackward", dora_backward),
    SPARK_OPERATION("doraMerge", dora_merge),
    SPARK_OPERATION("doraMergeBackward", dora_merge_backward),
    SPARK_OPERATION("doraUnmerge", dora_unmerge),
    SPARK_OPERATION("softmaxCrossEntropy", softmax_cross_entropy),
    SPARK_OPERATION("softmax", softmax),
    SPARK_OPERATION("softmaxBackward", softmax_backward),
    SPARK_OPERATION("norm", norm),
    SPARK_OPERATION("normBackward", norm_backward),
    SPARK_OPERATION("batchStatistics", batch_statistics),
    SPARK_OPERATION("batchNorm", batch_norm),
    SPARK_OPERATION("batchNormBackward", batch_norm_backward),
    SPARK_OPERATION("attention", attention),
    SPARK_OPERATION("attentionBackward", attention_backward),
    SPARK_OPERATION("adamw", adamw),
    SPARK_OPERATION("unary", unary),
    SPARK_OPERATION("binary", binary),
    SPARK_OPERATION("select", select),
    SPARK_OPERATION("reduce", reduce),
    SPARK_OPERATION("cumulate", cumulate),
    SPARK_OPERATION("topK", top_k),
    SPARK_OPERATION("copyStrided", copy_strided),
    SPARK_OPERATION("gather", gather),
    SPARK_OPERATION("scatter", scatter),
    SPARK_OPERATION("pool", pool),
    SPARK_OPERATION("poolBackward", pool_backward),
    SPARK_OPERATION("resample", resample),
    SPARK_OPERATION("dropoutMask", dropout_mask),
    SPARK_OPERATION("gridSample", grid_sample),
    SPARK_OPERATION("recurrent", recurrent),
};
#undef SPARK_OPERATION

const Operation& operation_named(const std::string& name) {
  for (const Operation& operation : kOperations) {
    if (name == operation.name) return operation;
  }
  throw Error("ERR_UNSUPPORTED", message("there is no operation called '", name, "'"));
}

Napi::Value wrap(Napi::Env env, const cuda::MemoryChoice& choice) {
  Napi::Array measured = Napi::Array::New(env);
  for (const cuda::MemorySpeed& speed : choice.measured) {
    Napi::Object each = Napi::Object::New(env);
    each["kind"] = memory_kind_name(speed.kind);
    each["resident"] = speed.resident;
    each["passing"] = speed.passing;
    measured.Set(measured.Length(), each);
  }
  Napi::Object result = Napi::Object::New(env);
  result["resident"] = memory_kind_name(choice.resident);
  result["passing"] = memory_kind_name(choice.passing);
  result["held"] = memory_kind_name(choice.held);
  result["measured"] = measured;
  return result;
}

}  // namespace

Work prepare(const std::string& op, const Backend& backend, Arguments& in) {
  return operation_named(op).prepare(backend, in);
}

bool has_operation(const std::string& op, const Backend& backend) {
  return operation_named(op).supported(backend);
}

Napi::Value run_sync(const Napi::CallbackInfo& info) {
  Arguments in(info[1].As<Napi::Object>());
  prepare(info[0].ToString(), cpu::backend(), in)();
  return info.Env().Undefined();
}

Napi::Value run_async(const Napi::CallbackInfo& info) {
  const bool owned = info[2].ToBoolean();
  const auto copies = std::make_shared<Copies>();
  Arguments in(info[1].As<Napi::Object>(), {}, owned ? nullptr : copies.get());
  Work work = prepare(info[0].ToString(), cpu::backend(), in);
  return start_job(
      info.Env(), [work = std::move(work), blocks = in.take_blocks()] { work(); }, in.take_references(),
      [copies](Napi::Env env) {
        copies->write_back();
        return env.Undefined();
      });
}

Napi::Value open_device(const Napi::CallbackInfo& info) {
  const int ordinal = info[0].ToNumber().Int32Value();
  return start_job(info.Env(), [ordinal] { cuda::Device::open(ordinal).preload(); });
}

Napi::Value measure_memory(const Napi::CallbackInfo& info) {
  const int ordinal = info[0].ToNumber().Int32Value();
  return start_query<cuda::MemoryChoice>(
      info.Env(), [ordinal] { return cuda::measure_memory(cuda::Device::get(ordinal)); }, wrap);
}

Napi::Value device_free_bytes(const Napi::CallbackInfo& info) {
  cuda::Device& device = cuda::Device::get(info[0].ToNumber().Int32Value());
  const cuda::DeviceScope scope(device);
  const auto bytes = cuda::free_memory(device, MemoryKind::kDevice).available;
  return Napi::Number::New(info.Env(), static_cast<double>(bytes));
}

Napi::Value run_cuda(const Napi::CallbackInfo& info) {
  cuda::Device& device = cuda::Device::get(info[0].ToNumber().Int32Value());
  cuda::DeviceScope scope(device);
  CudaCall call(info.Env(), device);
  Arguments in(info[2].As<Napi::Object>(), call.place());
  const Work work = prepare(info[1].ToString(), cuda::backend(), in);
  return call.start(work, in.take_references());
}

Napi::Value supports(const Napi::CallbackInfo& info) {
  const Backend& backend = info[0].ToString().Utf8Value() == "cuda" ? cuda::backend() : cpu::backend();
  return Napi::Boolean::New(info.Env(), has_operation(info[1].ToString(), backend));
}

Napi::Value set_threads(const Napi::CallbackInfo& info) {
  set_thread_count(info[0].As<Napi::Number>().Int32Value());
  return info.Env().Undefined();
}

Napi::Value cpu_isa(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), cpu_isa_name(spark::cpu_isa(), cpu_matrix_isa()));
}

Napi::Value test_fp4(const Napi::CallbackInfo& info) {
  const int ordinal = info[0].ToNumber().Int32Value();
  const bool own = info[1].ToString().Utf8Value() == "own";
  return start_query<std::optional<std::string>>(
      info.Env(), [=] { return cuda::test_fp4(ordinal, {.own = own, .cublaslt = !own}); },
      [](Napi::Env env, const std::optional<std::string>& problem) -> Napi::Value {
        if (!problem) return env.Null();
        return Napi::String::New(env, *problem);
      });
}

Napi::Value allow_fp4(const Napi::CallbackInfo& info) {
  cuda::allow_fp4(info[0].ToNumber().Int32Value(),
                  {.own = info[1].ToBoolean(), .cublaslt = info[2].ToBoolean()});
  return info.Env().Undefined();
}

Napi::Value cpu_isa_problem(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), cpu::lane_gemm_problem());
}

Napi::Value cpu_bf16_units(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), cpu::bf16_units());
}

}  // namespace spark::napi
