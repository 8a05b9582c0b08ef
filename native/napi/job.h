// job.h: work off the JavaScript thread, and the promises that wait for it.
#pragma once

#include <napi.h>

#include <exception>
#include <functional>
#include <vector>

namespace spark::napi {

// Runs `work` on Node's thread pool and returns a promise of what `result` makes of it on the JavaScript
// thread, undefined without one. `references` keep the operands of `work` alive until it is done; Node waits
// for it before it tears the environment down.
Napi::Value start_job(Napi::Env env, std::function<void()> work,
                      std::vector<Napi::ObjectReference> references = {},
                      std::function<Napi::Value(Napi::Env)> result = {});

// Settles a promise on the JavaScript thread: rejects it with `failure`, or resolves it with what `result`
// makes. Statuses are ignored on purpose: in a worker that is being terminated every call fails and nobody
// waits any more.
void settle(napi_env env, napi_deferred deferred, std::exception_ptr failure,
            const std::function<Napi::Value(Napi::Env)>& result = {});

}  // namespace spark::napi
