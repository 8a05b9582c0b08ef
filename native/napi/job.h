// job.h: CPU work off the JavaScript thread.
#pragma once

#include <napi.h>

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

}  // namespace spark::napi
