#include "napi/job.h"

#include <exception>
#include <memory>

#include "napi/error.h"

namespace spark::napi {
namespace {

struct Job {
  std::function<void()> work;
  std::vector<Napi::ObjectReference> references;
  JobResult result;
  napi_deferred deferred = nullptr;
  napi_async_work handle = nullptr;
  std::exception_ptr failure;
};

void execute(napi_env, void* data) {
  Job* job = static_cast<Job*>(data);
  try {
    job->work();
  } catch (...) {
    job->failure = std::current_exception();
  }
}

// Statuses are ignored on purpose: in a worker that is being terminated every call fails and nobody waits any
// more.
void complete(napi_env env, napi_status, void* data) {
  std::unique_ptr<Job> job(static_cast<Job*>(data));
  napi_delete_async_work(env, job->handle);
  napi_handle_scope scope;
  if (napi_open_handle_scope(env, &scope) != napi_ok) return;
  try {
    if (job->failure) {
      napi_reject_deferred(env, job->deferred, to_js_error(env, job->failure));
    } else {
      const Napi::Value value = job->result ? job->result(env) : Napi::Env(env).Undefined();
      napi_resolve_deferred(env, job->deferred, value);
    }
  } catch (...) {
  }
  napi_close_handle_scope(env, scope);
}

}  // namespace

Napi::Value start_job(Napi::Env env, std::function<void()> work,
                      std::vector<Napi::ObjectReference> references, JobResult result) {
  auto job = std::make_unique<Job>();
  job->work = std::move(work);
  job->references = std::move(references);
  job->result = std::move(result);
  napi_value promise;
  napi_create_promise(env, &job->deferred, &promise);
  napi_create_async_work(env, nullptr, Napi::String::New(env, "dgx-spark"), execute, complete, job.get(),
                         &job->handle);
  napi_queue_async_work(env, job->handle);
  job.release();  // complete() owns it now
  return Napi::Value(env, promise);
}

}  // namespace spark::napi
