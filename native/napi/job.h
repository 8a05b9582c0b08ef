// job.h: CPU work off the JavaScript thread.
#pragma once

#include <napi.h>

#include <functional>
#include <vector>

namespace spark::napi {

// Runs `work` on Node's thread pool and returns a promise of undefined. `references` keep the operands of
// `work` alive until it is done; Node waits for it before it tears the environment down.
Napi::Value start_job(Napi::Env env, std::function<void()> work,
                      std::vector<Napi::ObjectReference> references = {});

}  // namespace spark::napi
