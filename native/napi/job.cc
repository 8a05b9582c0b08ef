// job.cc: asynchronous jobs and their promises.
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

void complete(napi_env env, napi_status, void* data) {
  std::unique_ptr<Job> job(static_cast<Job*>(data));
  napi_delete_async_work(env, job->handle);
  napi_handle_scope scope;
  if (napi_open_handle_scope(env, &scope) != napi_ok) return;
  settle(env, job->deferred, job->failure, job->result);
  napi_close_handle_scope(env, scope);
}

}  // namespace

void settle(napi_env env, napi_deferred deferred, std::exception_ptr failure, const JobResult& result) {
  try {
    napi_value value = nullptr;
    if (!failure) {
      try {
        value = result ? result(env) : Napi::Env(env).Undefined();
      } catch (const Napi::Error&) {
        throw;
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (failure) {
      napi_reject_deferred(env, deferred, to_js_error(env, failure));
    } else {
      napi_resolve_deferred(env, deferred, value);
    }
  } catch (const Napi::Error& error) {
    napi_reject_deferred(env, deferred, error.Value());
  }
}

Napi::Value start_job(Napi::Env env, std::function<void()> work,
                      std::vector<Napi::ObjectReference> references, JobResult result) {
  auto job = std::make_unique<Job>();
  job->work = std::move(work);
  job->references = std::move(references);
  job->result = std::move(result);
  // In a worker that is being terminated any of these may fail.
  napi_value promise;
  if (napi_create_promise(env, &job->deferred, &promise) != napi_ok ||
      napi_create_async_work(env, nullptr, Napi::String::New(env, "dgx-spark"), execute, complete, job.get(),
                             &job->handle) != napi_ok) {
    throw Napi::Error::New(env);
  }
  if (napi_queue_async_work(env, job->handle) != napi_ok) {
    napi_delete_async_work(env, job->handle);
    throw Napi::Error::New(env);
  }
  job.release();  // complete() owns it now
  return Napi::Value(env, promise);
}

}  // namespace spark::napi
