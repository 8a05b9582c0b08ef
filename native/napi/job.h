// job.h: work off the JavaScript thread, and the promises that wait for it.
#pragma once

#include <napi.h>

#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace spark::napi {

// Makes the value of a job's promise, on the JavaScript thread.
using JobResult = std::function<Napi::Value(Napi::Env)>;

// Runs `work` on Node's thread pool and returns a promise of `result`, or of undefined without one.
// `references` keep the operands of `work` alive until it is done; Node waits for it before it tears the
// environment down.
Napi::Value start_job(Napi::Env env, std::function<void()> work,
                      std::vector<Napi::ObjectReference> references = {}, JobResult result = nullptr);

// A job whose promise gives what `work` returned, as `wrap` turns it into JavaScript.
template <typename Answer>
Napi::Value start_query(Napi::Env env, std::function<Answer()> work,
                        std::function<Napi::Value(Napi::Env, const Answer&)> wrap) {
  auto answer = std::make_shared<Answer>();
  return start_job(
      env, [answer, work = std::move(work)] { *answer = work(); }, {},
      [answer, wrap = std::move(wrap)](Napi::Env env) { return wrap(env, *answer); });
}

// Settles a promise on the JavaScript thread: rejects it with `failure`, or resolves it with what `result`
// makes. Statuses are ignored on purpose: in a worker that is being terminated every call fails and nobody
// waits any more.
void settle(napi_env env, napi_deferred deferred, std::exception_ptr failure,
            const JobResult& result = nullptr);

}  // namespace spark::napi
