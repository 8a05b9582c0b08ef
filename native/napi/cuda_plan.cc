// cuda_plan.cc: CUDA plans on ArrayBuffers.
#include "napi/cuda_plan.h"

#include "core/error.h"
#include "napi/cuda_call.h"
#include "napi/job.h"

namespace spark::napi {

CudaPlan::CudaPlan(cuda::Stream& stream, const Napi::Value& memory, bool graphs,
                   std::shared_ptr<PlanCommunicator> ranks)
    : plan_(stream, graphs), ranks_(std::move(ranks)) {
  if (ranks_) sums_ = dynamic_cast<cuda::StreamCommunicator*>(ranks_->communicator.get());
  if (sums_ && sums_->ordinal() != plan_.device().ordinal) {
    throw Error("ERR_ARGUMENT", message("the plan is for CUDA device ", plan_.device().ordinal,
                                        ", and its communicator has device ", sums_->ordinal()));
  }
  if (!memory.IsObject()) return;
  const Napi::Object roles = memory.As<Napi::Object>();
  declare(roles.Get("scratch"), Role::kScratch);
  declare(roles.Get("constant"), Role::kConstant);
  declare(roles.Get("state"), Role::kState);
  declare(roles.Get("shared"), Role::kShared);
}

void CudaPlan::declare(const Napi::Value& memory, Role role) {
  if (!memory.IsArray()) return;
  const Napi::Array array = memory.As<Napi::Array>();
  for (uint32_t i = 0; i < array.Length(); ++i) {
    const Napi::Value each = array.Get(i);
    if (each.IsTypedArray()) {
      const Napi::TypedArray view = each.As<Napi::TypedArray>();
      declare(view.ArrayBuffer(), view.ByteOffset(), view.ByteLength(), role);
    } else if (each.IsArrayBuffer()) {
      Napi::ArrayBuffer buffer = each.As<Napi::ArrayBuffer>();
      declare(buffer, 0, buffer.ByteLength(), role);
    }
  }
}

void CudaPlan::declare(Napi::ArrayBuffer buffer, size_t offset, size_t bytes, Role role) {
  if (!buffer.IsArrayBuffer()) return;  // put() refuses others
  plan_.declare(static_cast<const std::byte*>(buffer.Data()) + offset, static_cast<int64_t>(bytes), role);
}

Placement CudaPlan::placement() {
  return [this](Napi::Object array, void* data, const Footprint& touched, Access access) {
    return put(array, data, touched, access);
  };
}

void* CudaPlan::put(Napi::Object array, void* data, const Footprint& touched, Access access) {
  const int64_t bytes = touched.span().end;
  if (bytes == 0) return nullptr;  // no address of the host reaches the device
  if (void* address = plan_.reach(data, bytes)) return address;
  Napi::ArrayBuffer buffer = array.As<Napi::TypedArray>().ArrayBuffer();
  if (!buffer.IsArrayBuffer()) {
    throw Error("ERR_UNSUPPORTED", "the cuda backend reads no SharedArrayBuffer; copy it: array.slice()");
  }
  auto* start = static_cast<std::byte*>(buffer.Data());
  if (!buffers_.contains(start)) buffers_.emplace(start, Napi::Persistent(buffer));
  return plan_.put(start, static_cast<int64_t>(buffer.ByteLength()), data, touched, access);
}

// Not when the buffer has been detached since it was bound.
bool CudaPlan::is_attached(const void* buffer) const { return buffers_.at(buffer).Value().Data() == buffer; }

// A promise for what is enqueued, after which `finish` is called.
Napi::Value CudaPlan::when_passed(Napi::Env env, std::function<void()> finish, std::shared_ptr<void> keep) {
  return napi::when_passed(
      env, plan_.stream(), [in_flight = plan_.in_flight()] { *in_flight = false; },
      [finish = std::move(finish), keep = std::move(keep)](Napi::Env) { finish(); });
}

Napi::Value CudaPlan::run(Napi::Env env, Plan& steps, int64_t times, std::shared_ptr<void> keep) {
  const cuda::DeviceScope scope(plan_.device());
  plan_.begin();
  plan_.read_inputs();
  const auto result = [this, keep](Napi::Env env) {
    const cuda::DeviceScope scope(plan_.device());
    const auto finish = [this] {
      plan_.write_back(Role::kPassing, [this](const void* buffer) { return is_attached(buffer); });
    };
    return when_passed(env, finish, keep);
  };
  const auto enqueue = [this, &steps, times] {
    plan_.mark_begin();
    const auto pass = [this, &steps] { plan_.enqueue([&steps] { steps.perform(); }); };
    steps.repeat(times, [this, &pass] { sums_ ? sums_->run(pass) : pass(); });
    plan_.mark_end();
  };
  if (plan_.has_run() && times == 1 && !sums_) {
    enqueue();
    return result(env);
  }
  const auto work = [this, enqueue] {
    const cuda::DeviceScope scope(plan_.device());
    if (!plan_.has_run()) plan_.upload_shared();
    enqueue();
  };
  // The promise of `result` is that of the job; it alone holds the plan meanwhile.
  if (sums_) return start_with_ranks(env, *ranks_, work, result);
  return start_job(
      env, [work, keep] { work(); }, {}, result);
}

double CudaPlan::run_ms() {
  const cuda::DeviceScope scope(plan_.device());
  return plan_.run_ms();
}

Napi::Value CudaPlan::fetch(Napi::Env env, std::shared_ptr<void> keep) {
  const cuda::DeviceScope scope(plan_.device());
  plan_.begin();
  plan_.enqueue_fetch();
  const auto finish = [this] {
    plan_.write_back(Role::kState, [this](const void* buffer) { return is_attached(buffer); });
  };
  return when_passed(env, finish, std::move(keep));
}

Napi::Value CudaPlan::store(Napi::Env env, std::shared_ptr<void> keep) {
  const cuda::DeviceScope scope(plan_.device());
  plan_.begin();
  plan_.enqueue_store();
  return when_passed(
      env, [] {}, std::move(keep));
}

}  // namespace spark::napi
