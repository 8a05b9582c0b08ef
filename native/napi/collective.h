// collective.h: communicators as JavaScript sees them. A handle is an External; each has threads of its own,
// because ranks of one process that wait for each other would fill Node's thread pool.
#pragma once

#include <napi.h>

#include <functional>
#include <memory>

#include "collective/communicator.h"

namespace spark::napi {

// The communicator of a handle. Throws ERR_ARGUMENT for another value.
std::shared_ptr<collective::Communicator> communicator_of(const Napi::Value& handle);

// Does `work` on the thread of the communicator's collectives. A promise of undefined; `completion` is kept
// until it is settled, and dies on the JavaScript thread.
Napi::Value start_collective(Napi::Env env, const Napi::Value& handle, std::function<void()> work,
                             std::function<void(Napi::Env)> completion);

// communicatorLocal({ name, epoch, rank, world, timeoutMs }): a handle.
Napi::Value communicator_local(const Napi::CallbackInfo& info);

// communicatorMpi({ epoch, rank, world, timeoutMs }): a handle.
Napi::Value communicator_mpi(const Napi::CallbackInfo& info);

// ncclSecret(): a promise of the bytes that all ranks need; communicatorNccl({ epoch, rank, world, timeoutMs,
// device, secret }): a handle.
Napi::Value nccl_secret(const Napi::CallbackInfo& info);
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
