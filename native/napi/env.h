// env.h: the state of the addon per JavaScript environment (the main thread and each Worker have one), and
// the Door.
#pragma once

#include <napi.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace spark::napi {

// The way from a foreign thread into one environment. A completion after the environment's teardown would be
// a use after free in Node; the Door, closed by the teardown hook, drops it instead.
class Door {
 public:
  // Runs `job` on the JavaScript thread, or never when the environment is gone. Callable from any thread.
  void knock(std::function<void(Napi::Env)> job);

 private:
  friend struct EnvState;
  std::mutex mutex_;
  bool open_ = false;
  napi_threadsafe_function function_ = nullptr;
};

struct EnvState {
  explicit EnvState(Napi::Env env);

  static EnvState& of(Napi::Env env) { return *env.GetInstanceData<EnvState>(); }

  using Completion = std::function<void(Napi::Env, std::exception_ptr failure)>;

  // Keeps `completion`, and with it the process, until its ticket arrives. An environment that ends first
  // drops it on its own thread, which is the only one that may.
  uint64_t expect(Completion completion);

  // Runs the completion of `ticket`.
  void arrived(uint64_t ticket, std::exception_ptr failure);

  std::shared_ptr<Door> door = std::make_shared<Door>();
  // Handed over by lib/native.ts.
  Napi::FunctionReference spark_error;          // the class
  Napi::FunctionReference make_untransferable;  // of an ArrayBuffer
  // What sums for communicators that JavaScript carries, by their numbers.
  std::unordered_map<uint64_t, Napi::FunctionReference> summers;

 private:
  Napi::Env env_;
  uint64_t next_ticket_ = 0;
  std::unordered_map<uint64_t, Completion> expected_;
};

}  // namespace spark::napi
