// cuda_plan.h: a DevicePlan whose operands lie in ArrayBuffers, and the promises of its runs.
#pragma once

#include <napi.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "backend/cuda/nccl/nccl.h"
#include "backend/cuda/runtime/device_plan.h"
#include "napi/arguments.h"
#include "napi/collective.h"
#include "plan/plan.h"

namespace spark::napi {

// Keeps the ArrayBuffers alive. Lives and dies on the JavaScript thread.
class CudaPlan {
 public:
  // `stream`: what its runs are enqueued on. memory: { scratch, constant, state, shared }, arrays of
  // ArrayBuffers and typed arrays, by DevicePlan::Role. `graphs`: see cuda::Recording. `ranks`: null for a
  // plan of one machine. Throws ERR_ARGUMENT for ranks of NCCL on another device.
  CudaPlan(cuda::Stream& stream, const Napi::Value& memory, bool graphs,
           std::shared_ptr<PlanCommunicator> ranks);

  // Where the operands lie on the device; hand it to Arguments.
  Placement placement();

  // Tells that the operands placed since the last call are those of one step.
  void end_step() { plan_.end_step(); }

  // Enqueues the steps so many times between the copies and returns a promise of undefined, settled when the
  // outputs are back. `keep` lives until then, or until the run has failed. The first run, which uploads what
  // is shared and waits where it measures, and repeated ones are enqueued on a thread of Node's pool; all
  // runs with ranks on that of their communicator.
  Napi::Value run(Napi::Env env, Plan& steps, int64_t times, std::shared_ptr<void> keep);

  // See DevicePlan.
  double run_ms();

  // Copies the state from the device to its buffers, or the other way; as run().
  Napi::Value fetch(Napi::Env env, std::shared_ptr<void> keep);
  Napi::Value store(Napi::Env env, std::shared_ptr<void> keep);

  // Why the steps could not be captured, or "".
  const std::string& problem() const { return plan_.problem(); }

 private:
  using Role = cuda::DevicePlan::Role;

  void declare(const Napi::Value& memory, Role role);
  void declare(Napi::ArrayBuffer buffer, size_t offset, size_t bytes, Role role);
  void* put(Napi::Object array, void* data, const Footprint& touched, Access access);
  bool is_attached(const void* buffer) const;
  Napi::Value when_passed(Napi::Env env, std::function<void()> finish, std::shared_ptr<void> keep);

  std::map<const void*, Napi::Reference<Napi::ArrayBuffer>> buffers_;  // by their first address
  cuda::DevicePlan plan_;
  std::shared_ptr<PlanCommunicator> ranks_;
  cuda::StreamCommunicator* sums_ = nullptr;  // of `ranks_`; null where these are not NCCL's
};

}  // namespace spark::napi
