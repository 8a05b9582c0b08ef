// cuda_call.cc: single operations on a CUDA device.
#include "napi/cuda_call.h"

#include "backend/cuda/runtime/staging.h"
#include "backend/cuda/runtime/stream.h"
#include "core/error.h"
#include "napi/env.h"
#include "napi/job.h"

namespace spark::napi {
namespace {

// Copies what was written of a staged result into its typed array; an array that was detached meanwhile has
// no room and is skipped.
void copy_back(Napi::Env env, const Napi::ObjectReference& array, const void* source,
               const Footprint& written) {
  napi_typedarray_type type;
  size_t length;
  void* data;
  if (napi_get_typedarray_info(env, array.Value(), &type, &length, &data, nullptr, nullptr) != napi_ok)
    return;
  const auto bytes = static_cast<int64_t>(array.Value().As<Napi::TypedArray>().ByteLength());
  if (!data || bytes < written.span().end) return;
  written.copy(static_cast<std::byte*>(data), static_cast<const std::byte*>(source));
}

}  // namespace

CudaCall::CudaCall(Napi::Env env, cuda::Device& device)
    : env_(env), device_(device), staging_(std::make_shared<cuda::Staging>(device)) {}

Placement CudaCall::placement() {
  return [this](Napi::Object array, void* data, const Footprint& touched, Access access) {
    return put(array, data, touched, access);
  };
}

void* CudaCall::put(Napi::Object array, void* data, const Footprint& touched, Access access) {
  const size_t bytes = touched.span().end;
  if (bytes == 0) return nullptr;  // no address of the host reaches the device
  std::shared_ptr<Block> block = Block::find(data, bytes);
  if (block && cuda::reaches(device_, *block)) {
    staging_->keep(block);
    return cuda::on_device(*block, data);
  }
  const size_t index = staging_->size();
  void* address = staging_->add(data, bytes, access);
  if (access != Access::kRead) outputs_.push_back({index, Napi::Persistent(array), touched});
  return address;
}

Napi::Value CudaCall::start(const std::function<void()>& work,
                            std::vector<Napi::ObjectReference> references) {
  work();
  staging_->fetch();

  // References belong to the environment, so they wait there; the stream holds only what may be dropped on
  // any thread.
  struct Waiting {
    std::shared_ptr<cuda::Staging> staging;
    std::vector<Output> outputs;
    std::vector<Napi::ObjectReference> references;
  };
  auto waiting = std::make_shared<Waiting>();
  waiting->staging = staging_;
  waiting->outputs = std::move(outputs_);
  waiting->references = std::move(references);
  return when_passed(
      env_, device_.stream(),
      // The stream lets go first: once the promise has settled, the memory is free for the next call.
      [staging = staging_]() mutable {
        staging->passed();
        staging.reset();
      },
      [waiting](Napi::Env env) {
        for (const Output& output : waiting->outputs) {
          copy_back(env, output.array, waiting->staging->written(output.staged), output.written);
        }
      });
}

Napi::Value when_passed(Napi::Env env, cuda::Stream& stream, std::function<void()> passed,
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
    stream.then([door = state.door, passed = std::move(passed), ticket](std::exception_ptr failure) mutable {
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
