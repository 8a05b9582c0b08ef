// collective.h: communicators as JavaScript sees them. A handle is an External; each has threads of its own,
// because ranks of one process that wait for each other would fill Node's thread pool.
#pragma once

#include <napi.h>

#include <functional>
#include <memory>

#include "collective/communicator.h"
#include "napi/job.h"

namespace spark::napi {

// What the steps of a plan call to work with other ranks. Dies on the JavaScript thread.
struct PlanCommunicator {
  // Null for a handle that is undefined. Throws ERR_ARGUMENT for one of something else.
  static std::shared_ptr<PlanCommunicator> of(const Napi::Value& handle);

  Napi::ObjectReference handle;
  std::shared_ptr<collective::Communicator> communicator;
};

// Does the work of a plan whose steps wait for other ranks on the thread of its communicator: those of Node's
// pool are fewer than ranks may be. Work that fails ends the communicator, so that the others wait no longer.
// A promise of `result`, which is kept until then, and dies on the JavaScript thread.
Napi::Value start_with_ranks(Napi::Env env, const PlanCommunicator& ranks, std::function<void()> work,
                             JobResult result);

// communicatorLocal({ name, epoch, rank, world, timeoutMs }): a handle.
Napi::Value communicator_local(const Napi::CallbackInfo& info);

// communicatorMpi({ epoch, rank, world, timeoutMs }): a handle.
Napi::Value communicator_mpi(const Napi::CallbackInfo& info);

// ncclSecret(): a promise of the bytes that all ranks need; communicatorNccl({ epoch, rank, world, timeoutMs,
// device, secret }): a handle; ncclVersion(): a promise of the number of its version.
Napi::Value nccl_secret(const Napi::CallbackInfo& info);
Napi::Value nccl_version(const Napi::CallbackInfo& info);
Napi::Value communicator_nccl(const Napi::CallbackInfo& info);

// communicatorDelegate({ rank, world }, sum): a handle for plans, whose sums JavaScript makes. `sum(number,
// values)` is called for each; communicatorSummed(handle, number, sums) or communicatorAbort() answers it.
Napi::Value communicator_delegate(const Napi::CallbackInfo& info);
Napi::Value communicator_summed(const Napi::CallbackInfo& info);

// communicatorCall(handle, op, { bytes | values, all, peer }): a promise. `op` is open, send, recv,
// allReduce, allGather, broadcast, barrier or leave; `peer` the other rank, or the root.
Napi::Value communicator_call(const Napi::CallbackInfo& info);

// communicatorAbort(handle, reason)
Napi::Value communicator_abort(const Napi::CallbackInfo& info);

}  // namespace spark::napi
