// addon.cc: the exports of the addon, in the order of the contract interface in lib/native.ts.
#include <napi.h>

#include "napi/blueprint.h"
#include "napi/collective.h"
#include "napi/env.h"
#include "napi/error.h"
#include "napi/hardware.h"
#include "napi/kernels.h"
#include "napi/memory.h"
#include "napi/plan.h"

namespace spark::napi {
namespace {

// initialize(SparkError, makeUntransferable): hands over what is called from here. Must be the first call.
Napi::Value initialize(const Napi::CallbackInfo& info) {
  EnvState& state = EnvState::of(info.Env());
  state.spark_error = Napi::Persistent(info[0].As<Napi::Function>());
  state.make_untransferable = Napi::Persistent(info[1].As<Napi::Function>());
  return info.Env().Undefined();
}

template <Napi::Value (*Function)(const Napi::CallbackInfo&)>
void add(Napi::Object& exports, const char* name) {
  exports.Set(name, Napi::Function::New<guarded<Function>>(exports.Env(), name));
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  env.SetInstanceData(new EnvState(env));
  add<initialize>(exports, "initialize");

  // hardware
  add<query_nvml>(exports, "queryNvml");
  add<query_cuda>(exports, "queryCuda");
  add<sample_gpu>(exports, "sampleGpu");
  add<query_cublaslt>(exports, "queryCublasLt");
  add<kernel_families>(exports, "kernelFamilies");

  // memory
  add<memory_allocate>(exports, "allocate");
  add<memory_allocate_host>(exports, "allocateHost");
  add<memory_allocate_apart>(exports, "allocateApart");
  add<memory_upload>(exports, "upload");
  add<memory_view>(exports, "view");
  add<memory_read>(exports, "read");
  add<memory_write>(exports, "write");
  add<memory_copy>(exports, "copy");
  add<memory_prefetch>(exports, "prefetch");
  add<memory_advise>(exports, "advise");
  add<memory_dispose>(exports, "dispose");
  add<memory_hold>(exports, "hold");
  add<memory_release>(exports, "release");
  add<memory_line_padding>(exports, "linePadding");
  add<memory_stats>(exports, "memoryStats");
  add<external_buffers>(exports, "externalBuffers");
  add<refuse_external_buffers>(exports, "refuseExternalBuffers");

  // kernels
  add<supports>(exports, "supports");
  add<kernel_names>(exports, "kernelNames");
  add<open_device>(exports, "openDevice");
  add<measure_memory>(exports, "measureMemory");
  add<device_free_bytes>(exports, "deviceFreeBytes");
  add<run_cuda>(exports, "runCuda");
  add<run_sync>(exports, "run");
  add<run_async>(exports, "runAsync");
  add<set_threads>(exports, "setThreads");
  add<cpu_isa>(exports, "cpuIsa");
  add<cpu_isa_problem>(exports, "cpuIsaProblem");
  add<cpu_bf16_support>(exports, "cpuBf16Support");
  add<test_fp4>(exports, "testFp4");
  add<allow_fp4>(exports, "allowFp4");

  // plans
  add<blueprint_create>(exports, "blueprintCreate");
  add<blueprint_add>(exports, "blueprintAdd");
  add<blueprint_bind>(exports, "blueprintBind");
  add<blueprint_bind_steps>(exports, "blueprintBindSteps");
  add<blueprint_dispose>(exports, "blueprintDispose");
  add<plan_create>(exports, "planCreate");
  add<plan_run>(exports, "planRun");
  add<plan_stop>(exports, "planStop");
  add<plan_fetch>(exports, "planFetch");
  add<plan_store>(exports, "planStore");
  add<plan_profile>(exports, "planProfile");
  add<plan_step_times>(exports, "planStepTimes");
  add<plan_device_ms>(exports, "planDeviceMs");
  add<plan_problem>(exports, "planProblem");
  add<plan_dispose>(exports, "planDispose");

  // collective
  add<communicator_local>(exports, "communicatorLocal");
  add<communicator_mpi>(exports, "communicatorMpi");
  add<nccl_secret>(exports, "ncclSecret");
  add<nccl_version>(exports, "ncclVersion");
  add<communicator_nccl>(exports, "communicatorNccl");
  add<communicator_delegate>(exports, "communicatorDelegate");
  add<communicator_summed>(exports, "communicatorSummed");
  add<communicator_call>(exports, "communicatorCall");
  add<communicator_abort>(exports, "communicatorAbort");

  // text
  add<sample_tokens>(exports, "sampleTokens");
  return exports;
}

}  // namespace
}  // namespace spark::napi

static Napi::Object init_module(Napi::Env env, Napi::Object exports) {
  return spark::napi::init(env, exports);
}
NODE_API_MODULE(dgx_spark, init_module)
