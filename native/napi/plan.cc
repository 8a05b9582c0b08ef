// plan.cc: bindings of plans.
#include "napi/plan.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "napi/bound_plan.h"
#include "napi/collective.h"
#include "napi/job.h"
#include "napi/operations.h"

namespace spark::napi {
namespace {

// A plan whose last run took less may run on the JavaScript thread: the way to another thread and back takes
// some tens of microseconds.
constexpr std::chrono::microseconds kBriefRun{6000};
// The same beside runs on other threads, which leave it few workers or none.
constexpr std::chrono::microseconds kBriefRunBesideOthers{500};

std::atomic<int> runs_elsewhere{0};

bool is_brief(const Plan& plan) {
  return plan.last_run() < (runs_elsewhere == 0 ? kBriefRun : kBriefRunBesideOthers);
}

// Works on a plan of the CPU: before this returns where `at_once`, in a job otherwise.
Napi::Value work_on(Napi::Env env, const PlanHandle& bound, bool at_once,
                    const std::function<void(Plan&)>& work) {
  // Where ranks wait for each other, only the promise holds the plan: it dies on the JavaScript thread.
  const auto run = [bound = bound.get(), work] {
    const ThreadLimit limit(bound->threads);
    work(bound->plan);
  };
  if (bound->communicator) {
    return start_with_ranks(env, *bound->communicator, run,
                            [bound](Napi::Env env) { return env.Undefined(); });
  }
  if (at_once && is_brief(bound->plan)) {
    run();
    return env.Undefined();
  }
  return start_job(env, [run, bound] {
    ++runs_elsewhere;
    const std::shared_ptr<void> counted(nullptr, [](void*) { --runs_elsewhere; });
    run();
  });
}

// The plan, reserved until the last copy of the pointer goes: for one run, however that begins and ends. A
// run on memory that somebody has detached since (transfer(), dispose()) would be a use after free.
PlanHandle claimed(const Napi::Value& value) {
  const PlanHandle& handle = *value.As<Napi::External<PlanHandle>>().Data();
  if (!handle) throw Error("ERR_DISPOSED", "the plan has been disposed");
  handle->memory.expect_attached();
  if (handle->shared) handle->shared->expect_attached();
  handle->plan.claim();
  return {handle.get(), [handle](BoundPlan* bound) { bound->plan.release(); }};
}

void bind_steps(const Napi::Array& steps, const Backend& backend, const Placement& placement,
                BoundPlan& bound) {
  for (uint32_t i = 0; i < steps.Length(); ++i) {
    const Napi::HandleScope scope(steps.Env());
    const Napi::Object step = steps.Get(i).As<Napi::Object>();
    const std::string op = step.Get("op").ToString();
    const Napi::Value node = step.Get("node");
    const std::string what =
        node.IsString() ? message(op, " of node '", node.ToString().Utf8Value(), "'") : op;
    Arguments in(step.Get("args").As<Napi::Object>(), placement);
    if (bound.communicator) in.set_communicator(bound.communicator->communicator.get());
    try {
      bound.plan.add(what, prepare(op, backend, in));
    } catch (const Error& error) {
      throw Error(error.code, message("step ", i, " of the plan, ", what, ": ", error.what()));
    }
    bound.memory.keep(in.take_references(), in.take_blocks());
    if (bound.cuda) bound.cuda->end_step();
  }
}

}  // namespace

Napi::Value plan_create(const Napi::CallbackInfo& info) {
  const Napi::Array steps = info[0].As<Napi::Array>();
  auto bound = std::make_shared<BoundPlan>();
  bound->communicator = PlanCommunicator::of(info[5]);
  if (info[1].IsNumber()) {
    cuda::Device& device = cuda::Device::get(info[1].ToNumber().Int32Value());
    const cuda::DeviceScope scope(device);
    const bool graphs = info[3].IsUndefined() || info[3].ToBoolean();
    // Communicators wait for the first stream.
    const uint32_t index = info[6].IsNumber() && !bound->communicator ? info[6].ToNumber().Uint32Value() : 0;
    bound->cuda = std::make_unique<CudaPlan>(device.stream(index), info[2], graphs, bound->communicator);
    bind_steps(steps, cuda::backend(), bound->cuda->placement(), *bound);
  } else {
    bound->threads = info[4].IsNumber() ? info[4].ToNumber().Int32Value() : 0;
    const ThreadLimit limit(bound->threads);
    bind_steps(steps, cpu::backend(), {}, *bound);
  }
  return plan_handle(info.Env(), std::move(bound));
}

Napi::Value plan_run(const Napi::CallbackInfo& info) {
  const PlanHandle bound = claimed(info[0]);
  const int64_t times = info[2].IsNumber() ? info[2].ToNumber().Int64Value() : 1;
  if (bound->cuda) return bound->cuda->run(info.Env(), bound->plan, times, bound);
  return work_on(info.Env(), bound, info[1].ToBoolean() && times == 1,
                 [times](Plan& plan) { plan.run(times); });
}

Napi::Value plan_stop(const Napi::CallbackInfo& info) {
  const PlanHandle& bound = *info[0].As<Napi::External<PlanHandle>>().Data();
  if (bound) bound->plan.stop();
  return info.Env().Undefined();
}

Napi::Value plan_fetch(const Napi::CallbackInfo& info) {
  const PlanHandle bound = claimed(info[0]);
  return bound->cuda->fetch(info.Env(), bound);
}

Napi::Value plan_store(const Napi::CallbackInfo& info) {
  const PlanHandle bound = claimed(info[0]);
  return bound->cuda->store(info.Env(), bound);
}

Napi::Value plan_profile(const Napi::CallbackInfo& info) {
  const PlanHandle bound = claimed(info[0]);
  if (bound->cuda) {
    throw Error("ERR_UNSUPPORTED", "steps on a device have no clock of their own: run them one by one");
  }
  return work_on(info.Env(), bound, info[1].ToBoolean(), [](Plan& plan) { plan.profile(); });
}

Napi::Value plan_step_times(const Napi::CallbackInfo& info) {
  const PlanHandle bound = claimed(info[0]);
  const std::vector<double>& times = bound->plan.step_times();
  Napi::Float64Array array = Napi::Float64Array::New(info.Env(), times.size());
  std::copy(times.begin(), times.end(), array.Data());
  return array;
}

Napi::Value plan_device_ms(const Napi::CallbackInfo& info) {
  const PlanHandle bound = claimed(info[0]);
  const double milliseconds = bound->cuda ? bound->cuda->run_ms() : -1;
  if (milliseconds < 0) return info.Env().Null();
  return Napi::Number::New(info.Env(), milliseconds);
}

Napi::Value plan_problem(const Napi::CallbackInfo& info) {
  const PlanHandle& bound = *info[0].As<Napi::External<PlanHandle>>().Data();
  return Napi::String::New(info.Env(), bound && bound->cuda ? bound->cuda->problem() : "");
}

Napi::Value plan_dispose(const Napi::CallbackInfo& info) {
  info[0].As<Napi::External<PlanHandle>>().Data()->reset();
  return info.Env().Undefined();
}

}  // namespace spark::napi
