// env.cc: per-environment state of the addon.
#include "napi/env.h"

namespace spark::napi {
namespace {

using Job = std::function<void(Napi::Env)>;

void run_job(napi_env env, napi_value, void*, void* data) {
  std::unique_ptr<Job> job(static_cast<Job*>(data));
  if (!env) return;  // the environment is being torn down
  Napi::HandleScope scope(env);
  (*job)(Napi::Env(env));
}

}  // namespace

void Door::knock(Job job) {
  auto owned = std::make_unique<Job>(std::move(job));  // outlives the lock: what it holds may need the Door
  std::lock_guard lock(mutex_);
  if (!open_) return;
  if (napi_call_threadsafe_function(function_, owned.get(), napi_tsfn_nonblocking) == napi_ok)
    owned.release();
}

EnvState::EnvState(Napi::Env env) : env_(env) {
  napi_value name = Napi::String::New(env, "dgx-spark");
  napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, nullptr, run_job,
                                  &door->function_);
  napi_unref_threadsafe_function(env, door->function_);
  door->open_ = true;
  napi_add_env_cleanup_hook(
      env,
      [](void* data) {
        std::unique_ptr<std::shared_ptr<Door>> held(static_cast<std::shared_ptr<Door>*>(data));
        std::lock_guard lock((*held)->mutex_);
        (*held)->open_ = false;
      },
      new std::shared_ptr<Door>(door));
}

uint64_t EnvState::expect(Completion completion) {
  if (expected_.empty()) napi_ref_threadsafe_function(env_, door->function_);
  expected_.emplace(next_ticket_, std::move(completion));
  return next_ticket_++;
}

void EnvState::arrived(uint64_t ticket, std::exception_ptr failure) {
  const auto entry = expected_.extract(ticket);
  if (expected_.empty()) napi_unref_threadsafe_function(env_, door->function_);
  if (!entry.empty()) entry.mapped()(env_, failure);
}

}  // namespace spark::napi
