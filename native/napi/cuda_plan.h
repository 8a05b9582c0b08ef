// cuda_plan.h: a plan on a CUDA device: where its operands lie there, and its runs.
#pragma once

#include <napi.h>

#include <atomic>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/recording.h"
#include "napi/arguments.h"

namespace spark::napi {

// An ArrayBuffer that operands lie in has a copy on the device, made when the first of them is bound. One
// that is resident is copied then and never again; any other before and after each run, through pinned
// memory. Blocks that the device reaches are used where they are. Lives and dies on the JavaScript thread.
class CudaPlan {
 public:
  CudaPlan(cuda::Device& device, const Napi::Value& resident);
  ~CudaPlan();

  cuda::Device& device() const { return device_; }

  // Finds the operands their place; hand it to Arguments.
  Place place();

  // Enqueues `steps` between the copies and returns a promise of undefined, settled when the outputs are
  // back. `keep` lives until then, `done` is called then or when the run has failed.
  Napi::Value run(Napi::Env env, const std::function<void()>& steps, std::shared_ptr<void> keep,
                  std::function<void()> done);

  // Why the steps could not be captured, or "".
  const std::string& problem() const { return recording_.problem(); }

 private:
  struct Area {
    Napi::Reference<Napi::ArrayBuffer> buffer;
    std::shared_ptr<Block> pinned;     // null for one that is resident
    std::shared_ptr<Block> on_device;  // null where the device reads pinned memory instead
    size_t bytes;
    bool written;
  };

  void* put(Napi::Object array, void* data, size_t bytes, Access access);
  Area add_area(Napi::ArrayBuffer buffer);
  void upload(const Block& target, const void* data, size_t bytes);
  void copy(const Block& target, const Block& source, size_t bytes);

  cuda::Device& device_;
  std::vector<Napi::Reference<Napi::ArrayBuffer>> resident_;
  std::unordered_map<const void*, Area> areas_;  // by the first address of the buffer
  std::vector<std::shared_ptr<Block>> blocks_;
  cuda::Recording recording_;
  std::shared_ptr<std::atomic<bool>> in_flight_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace spark::napi
