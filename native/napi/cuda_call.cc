#include "napi/cuda_call.h"

#include <cstring>

#include "backend/cuda/staging.h"
#include "backend/cuda/stream.h"
#include "core/error.h"
#include "napi/env.h"
#include "napi/job.h"

namespace spark::napi {
namespace {

// Copies a staged result into its typed array; an array that was detached meanwhile has no room and is
// skipped.
void copy_back(Napi::Env env, const Napi::ObjectReference& array, const void* source, size_t bytes) {
  napi_typedarray_type type;
  size_t length;
  void* data;
  if (napi_get_typedarray_info(env, array.Value(), &type, &length, &data, nullptr, nullptr) != napi_ok)
    return;
  if (data && array.Value().As<Napi::TypedArray>().ByteLength() >= bytes) std::memcpy(data, source, bytes);
}

}  // namespace

// What the device works on. Held by the stream until it has passed, and by the promise.
struct CudaCall::InFlight {
  explicit InFlight(cuda::Device& device) : device(device), staging(device) {}

  // After a failure half-way: what the device may still be using is given back only when it is done. When
  // even waiting fails the context is ruined and uses nothing.
  ~InFlight() {
    if (passed || (staging.size() == 0 && blocks.empty())) return;
    try {
      cuda::DeviceScope scope(device);
      device.stream().synchronize();
    } catch (const Error&) {
    }
  }

  cuda::Device& device;
  cuda::Staging staging;
  std::vector<std::shared_ptr<Block>> blocks;
  std::atomic<bool> passed{false};
};

CudaCall::CudaCall(Napi::Env env, cuda::Device& device)
    : env_(env), device_(device), in_flight_(std::make_shared<InFlight>(device)) {}

Place CudaCall::place() {
  return [this](Napi::Object array, void* data, size_t bytes, Access access) {
    return put(array, data, bytes, access);
  };
}

void* CudaCall::put(Napi::Object array, void* data, size_t bytes, Access access) {
  if (bytes == 0) return nullptr;  // no address of the host reaches the device
  std::shared_ptr<Block> block = Block::find(data, bytes);
  if (block && cuda::reaches(device_, *block)) {
    in_flight_->blocks.push_back(std::move(block));
    return data;
  }
  const size_t index = in_flight_->staging.size();
  void* address = in_flight_->staging.add(data, bytes, access);
  if (access != Access::kRead) outputs_.push_back({index, Napi::Persistent(array), bytes});
  return address;
}

Napi::Value CudaCall::start(const std::function<void()>& work,
                            std::vector<Napi::ObjectReference> references) {
  work();
  in_flight_->staging.fetch();

  // References belong to the environment, so they wait there; the stream holds only what may be dropped on
  // any thread.
  struct Waiting {
    std::shared_ptr<InFlight> in_flight;
    std::vector<Output> outputs;
    std::vector<Napi::ObjectReference> references;
  };
  auto waiting = std::make_shared<Waiting>();
  waiting->in_flight = in_flight_;
  waiting->outputs = std::move(outputs_);
  waiting->references = std::move(references);
  return when_passed(
      env_, device_,
      // The stream lets go first: once the promise has settled, the memory is free for the next call.
      [in_flight = in_flight_]() mutable {
        in_flight->passed = true;
        in_flight.reset();
      },
      [waiting](Napi::Env env) {
        for (const Output& output : waiting->outputs) {
          copy_back(env, output.array, waiting->in_flight->staging.written(output.staged), output.bytes);
        }
      });
}

Napi::Value when_passed(Napi::Env env, cuda::Device& device, std::function<void()> passed,
                        std::function<void(Napi::Env)> finish) {
  struct Waiting {
    napi_deferred deferred = nullptr;
    std::function<void(Napi::Env)> finish;
  };
  auto waiting = std::make_shared<Waiting>();
  waiting->finish = std::move(finish);
  napi_value promise;
  if (napi_create_promise(env, &waiting->deferred, &promise) != napi_ok) throw Napi::Error::New(env);

  EnvState& state = EnvState::of(env);
  const uint64_t ticket = state.expect([waiting](Napi::Env env, std::exception_ptr failure) {
    settle(env, waiting->deferred, failure, [&](Napi::Env env) -> Napi::Value {
      waiting->finish(env);
      return env.Undefined();
    });
  });
  try {
    device.stream().then(
        [door = state.door, passed = std::move(passed), ticket](std::exception_ptr failure) mutable {
          passed();
          passed = nullptr;
          door->knock([ticket, failure](Napi::Env env) { EnvState::of(env).arrived(ticket, failure); });
        });
  } catch (...) {
    state.arrived(ticket, std::current_exception());
  }
  return Napi::Value(env, promise);
}

}  // namespace spark::napi
