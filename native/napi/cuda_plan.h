// cuda_plan.h: a plan on a CUDA device: where its operands lie there, and its runs.
#pragma once

#include <napi.h>

#include <atomic>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/memory_speed.h"
#include "backend/cuda/recording.h"
#include "napi/arguments.h"

namespace spark::napi {

// An ArrayBuffer that operands lie in has a copy on the device, made when the first of them is bound. It is
// copied before and after each run, through pinned memory, unless `memory` says that it stays there; what
// kinds of memory these are, memory_speed.h chooses. Blocks that the device reaches are used where they are.
// Lives and dies on the JavaScript thread.
class CudaPlan {
 public:
  // memory: { scratch, constant, state }, arrays of ArrayBuffers that the steps write before they read, that
  // they only read, and that they change from run to run.
  CudaPlan(cuda::Device& device, const Napi::Value& memory);
  ~CudaPlan();

  cuda::Device& device() const { return device_; }

  // Finds the operands their place; hand it to Arguments.
  Place place();

  // Enqueues `steps` between the copies and returns a promise of undefined, settled when the outputs are
  // back. `keep` lives until then, `done` is called then or when the run has failed. The first run, which
  // waits where it measures, is enqueued on a thread of Node's pool.
  Napi::Value run(Napi::Env env, const std::function<void()>& steps, std::shared_ptr<void> keep,
                  std::function<void()> done);

  // Copies the state from the device to its buffers, or the other way; as run().
  Napi::Value fetch(Napi::Env env, std::shared_ptr<void> keep, std::function<void()> done);
  Napi::Value store(Napi::Env env, std::shared_ptr<void> keep, std::function<void()> done);

  // Why the steps could not be captured, or "".
  const std::string& problem() const { return recording_.problem(); }

 private:
  enum class Role { kPassing, kScratch, kConstant, kState };
  struct Area {
    Napi::Reference<Napi::ArrayBuffer> buffer;
    Role role;
    std::shared_ptr<Block> host;       // that the device reaches, of what is passed on and of state
    std::shared_ptr<Block> on_device;  // of the kind for it; null where the device reads `host` instead
    size_t bytes;
    bool read;  // of what is passed on: whether the first step to use it writes less than the whole
    bool written;
  };

  void know(const Napi::Value& buffers, Role role);
  void* put(Napi::Object array, void* data, size_t bytes, Access access);
  Area add_area(Napi::ArrayBuffer buffer);
  void upload(const Block& target, const void* data, size_t bytes);
  void copy(const Block& target, const Block& source, size_t bytes);
  void before_work();
  Napi::Value passed(Napi::Env env, Role role, std::shared_ptr<void> keep, std::shared_ptr<void> finally);

  cuda::Device& device_;
  const cuda::MemoryChoice memory_;
  std::vector<std::pair<Napi::Reference<Napi::ArrayBuffer>, Role>> known_;
  std::unordered_map<const void*, Area> areas_;  // by the first address of the buffer
  std::vector<std::shared_ptr<Block>> blocks_;
  cuda::Recording recording_;
  std::shared_ptr<std::atomic<bool>> in_flight_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace spark::napi
