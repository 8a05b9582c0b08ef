// cuda_plan.h: a plan on a CUDA device: where its operands lie there, and its runs.
#pragma once

#include <napi.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/memory_speed.h"
#include "backend/cuda/runtime/recording.h"
#include "napi/arguments.h"

namespace spark::napi {

// An ArrayBuffer that operands lie in has a copy on the device, made when the first of them is bound. Before
// each run what the steps read of it is copied there, afterwards what they wrote is copied back, through
// pinned memory, unless `memory` says that it stays there; nothing else of the ArrayBuffer is touched. What
// kinds of memory these are, memory_speed.h chooses. Blocks that the device reaches are used where they are.
// Lives and dies on the JavaScript thread.
class CudaPlan {
 public:
  // memory: { scratch, constant, state }, arrays of ArrayBuffers and typed arrays that the steps write before
  // they read, that they only read, and that they change from run to run. `graphs`: see Recording.
  CudaPlan(cuda::Device& device, const Napi::Value& memory, bool graphs);
  ~CudaPlan();

  cuda::Device& device() const { return device_; }

  // Finds the operands their place; hand it to Arguments.
  Place place();

  // Tells that the operands placed since the last call are those of one step.
  void end_step();

  // Enqueues `steps` between the copies and returns a promise of undefined, settled when the outputs are
  // back. `keep` lives until then, or until the run has failed. The first run, which waits where it measures,
  // is enqueued on a thread of Node's pool.
  Napi::Value run(Napi::Env env, const std::function<void()>& steps, std::shared_ptr<void> keep);

  // Copies the state from the device to its buffers, or the other way; as run().
  Napi::Value fetch(Napi::Env env, std::shared_ptr<void> keep);
  Napi::Value store(Napi::Env env, std::shared_ptr<void> keep);

  // Why the steps could not be captured, or "".
  const std::string& problem() const { return recording_.problem(); }

 private:
  enum class Role { kPassing, kScratch, kConstant, kState };
  // The part of an ArrayBuffer that has a role, at the places that it has in the whole.
  struct Area {
    Napi::Reference<Napi::ArrayBuffer> buffer;
    Role role;
    std::shared_ptr<Block> host;       // that the device reaches, of what is passed on and of state
    std::shared_ptr<Block> on_device;  // of the kind for it; null where the device reads `host` instead
    int64_t bytes;
    Ranges read;  // before a step has written it
    FootprintSet written;
  };
  struct Use {
    Area* area;
    Footprint touched;
    Access access;
  };

  void know(const Napi::Value& memory, Role role);
  void know(Napi::ArrayBuffer buffer, Range bytes, Role role);
  Role role_of(const void* data, Range touched) const;
  void* put(Napi::Object array, void* data, const Footprint& touched, Access access);
  Area add_area(Napi::ArrayBuffer buffer, Role role);
  void upload(const Block& target, const void* data, int64_t bytes);
  void copy(const Block& target, const Block& source, Range range);
  void before_work();
  void enqueue(const std::function<void()>& steps);
  Napi::Value passed(Napi::Env env, Role role, std::shared_ptr<void> keep);

  cuda::Device& device_;
  const cuda::MemoryChoice memory_;
  std::map<Role, Ranges> known_;                        // addresses
  std::map<std::pair<const void*, Role>, Area> areas_;  // by the first address of the buffer
  std::vector<Use> uses_;                               // of the step that is being bound
  std::vector<std::shared_ptr<Block>> blocks_;
  cuda::Recording recording_;
  std::shared_ptr<std::atomic<bool>> in_flight_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace spark::napi
