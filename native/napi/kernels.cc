// kernels.cc: bindings of the backend tables and of the token sampler.
#include "napi/kernels.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/gemm/fp4_test.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/memory_speed.h"
#include "core/cpu_isa.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "core/token_sampler.h"
#include "napi/arguments.h"
#include "napi/cuda_call.h"
#include "napi/job.h"
#include "napi/operations.h"

namespace spark::napi {
namespace {

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

template <typename Names>
Napi::Array array_of(Napi::Env env, const Names& names) {
  Napi::Array result = Napi::Array::New(env);
  for (const char* name : names) result.Set(result.Length(), name);
  return result;
}

constexpr int64_t kMostSampledRows = 1 << 16;

SamplerRow read_sampler_row(Arguments& in) {
  SamplerRow row{};
  row.temperature = in.number("temperature");
  row.top_k = in.size("topK");
  row.top_p = in.number("topP");
  row.min_p = in.number("minP");
  row.typical_p = in.number("typicalP");
  row.repetition_penalty = in.number("repetitionPenalty");
  row.presence_penalty = in.number("presencePenalty");
  row.frequency_penalty = in.number("frequencyPenalty");
  row.uniform = in.number("uniform");
  row.seen_count = in.size("seenCount");
  row.seen = in.input<int32_t>("seen", row.seen_count);
  row.counted_count = in.size("countedCount");
  row.counted = in.input<int32_t>("counted", row.counted_count);
  row.counts = in.input<int32_t>("counts", row.counted_count);
  row.biased_count = in.size("biasedCount");
  row.biased = in.input<int32_t>("biased", row.biased_count);
  row.biases = in.input<double>("biases", row.biased_count);
  row.id = in.output<int32_t>("id", 1);
  row.logprob = in.optional_output<double>("logprob", 1);
  row.top_count = row.logprob ? in.size("topCount") : 0;
  row.top = in.optional_output<int32_t>("top", row.top_count);
  row.top_logprobs = in.optional_output<double>("topLogprobs", row.top_count);
  return row;
}

}  // namespace

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
  Arguments in(info[2].As<Napi::Object>(), call.placement());
  const Work work = prepare(info[1].ToString(), cuda::backend(), in);
  return call.start(work, in.take_references());
}

Napi::Value supports(const Napi::CallbackInfo& info) {
  const Backend& backend = info[0].ToString().Utf8Value() == "cuda" ? cuda::backend() : cpu::backend();
  return Napi::Boolean::New(info.Env(), has_operation(info[1].ToString(), backend));
}

Napi::Value kernel_names(const Napi::CallbackInfo& info) {
  Napi::Object result = Napi::Object::New(info.Env());
  result["operations"] = array_of(info.Env(), operation_names());
  result["unary"] = array_of(info.Env(), kUnaryNames);
  result["binary"] = array_of(info.Env(), kBinaryNames);
  return result;
}

Napi::Value set_threads(const Napi::CallbackInfo& info) {
  set_thread_count(info[0].As<Napi::Number>().Int32Value());
  if (info[1].IsNumber()) set_core_count(info[1].As<Napi::Number>().Int32Value());
  return info.Env().Undefined();
}

Napi::Value cpu_isa(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), cpu_isa_name(spark::cpu_isa()));
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
  return Napi::String::New(info.Env(), cpu::cpu_isa_problem());
}

Napi::Value cpu_bf16_support(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), cpu::bf16_support());
}

Napi::Value sample_tokens(const Napi::CallbackInfo& info) {
  const auto copies = std::make_shared<Copies>();
  Arguments in(info[0].As<Napi::Object>(), {}, copies.get());
  const int64_t vocabulary = in.size("vocabulary");
  std::vector<SamplerRow> rows;
  in.each("rows", kMostSampledRows, [&](int64_t) { rows.push_back(read_sampler_row(in)); });
  const float* logits = in.input<float>("logits", elements(rows.size(), vocabulary));
  const auto work = [logits, vocabulary, rows = std::move(rows), blocks = in.take_blocks()] {
    parallel_for(rows.size(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sample_token(logits + i * vocabulary, vocabulary, rows[i]);
    });
  };
  return start_job(info.Env(), work, in.take_references(), [copies](Napi::Env env) {
    copies->write_back();
    return env.Undefined();
  });
}

}  // namespace spark::napi
