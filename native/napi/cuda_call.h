// cuda_call.h: one operation on a CUDA device, from its operands to the promise that it settles.
#pragma once

#include <napi.h>

#include <functional>
#include <memory>
#include <vector>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/staging.h"
#include "backend/cuda/runtime/stream.h"
#include "napi/arguments.h"

namespace spark::napi {

// An operand that lies in a block the device reaches is used where it is; any other is staged. What the
// device works on is kept by native references until it is done, so that neither dispose() nor the end of the
// environment can take it away.
class CudaCall {
 public:
  // `device` must be current for the life of the call.
  CudaCall(Napi::Env env, cuda::Device& device);

  // Where the operands lie; hand it to Arguments.
  Placement placement();

  // Enqueues `work` and returns a promise of undefined, settled when the outputs are written.
  Napi::Value start(const std::function<void()>& work, std::vector<Napi::ObjectReference> references);

 private:
  struct Output {
    size_t staged;  // index in the staging
    Napi::ObjectReference array;
    Footprint written;
  };

  void* put(Napi::Object array, void* data, const Footprint& touched, Access access);

  Napi::Env env_;
  cuda::Device& device_;
  std::shared_ptr<cuda::Staging> staging_;
  std::vector<Output> outputs_;
};

// A promise of undefined for everything that is enqueued on `stream`. When the device is done `passed` is
// called on a thread of the stream, and dropped, then `finish` on the JavaScript thread, unless the device
// failed. `finish` holds what belongs to the environment, and is dropped there in any case.
Napi::Value when_passed(Napi::Env env, cuda::Stream& stream, std::function<void()> passed,
                        std::function<void(Napi::Env)> finish);

}  // namespace spark::napi
