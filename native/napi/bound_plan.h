// bound_plan.h: a plan and what keeps its operands alive.
#pragma once

#include <napi.h>

#include <memory>
#include <unordered_set>
#include <vector>

#include "core/block.h"
#include "napi/collective.h"
#include "napi/cuda_plan.h"
#include "napi/field.h"
#include "plan/plan.h"

namespace spark::napi {

// The memory that operands lie in. Dies on the JavaScript thread.
class HeldMemory {
 public:
  // Keeps an array whose memory nobody else can reach.
  void keep_private(Napi::ObjectReference array) { private_.push_back(std::move(array)); }

  // Keeps the memory of these arrays, which can then no longer be transferred.
  void keep(std::vector<Napi::ObjectReference> arrays, std::vector<std::shared_ptr<Block>> blocks);

  // Throws ERR_DISPOSED when somebody has taken the memory away since: a run on it would be a use after free.
  void expect_attached() const;

 private:
  // An ArrayBuffer, and where it was.
  struct Buffer {
    Napi::Reference<Napi::ArrayBuffer> buffer;
    const void* data;
  };

  std::vector<Buffer> buffers_;
  std::vector<Napi::ObjectReference> private_;
  std::vector<Napi::ObjectReference> shared_;  // in SharedArrayBuffers, which nobody can detach
  std::vector<std::shared_ptr<Block>> blocks_;
  std::unordered_set<const void*> known_;  // addresses of all of it
};

// A plan and what keeps its operands alive. Dies on the JavaScript thread.
struct BoundPlan {
  Plan plan;
  std::unique_ptr<CudaPlan> cuda;                  // null on the CPU
  int threads = 0;                                 // on the CPU; 0: as many as all kernels
  std::shared_ptr<PlanCommunicator> communicator;  // null for a plan of one machine
  HeldMemory memory;
  std::shared_ptr<HeldMemory> shared;  // that of all plans of a blueprint; null for others
  std::vector<double> sizes;           // of a plan of a blueprint
  std::vector<Region> regions;         // of a plan of a blueprint
};

// What the External of a plan owns; null after dispose.
using PlanHandle = std::shared_ptr<BoundPlan>;

Napi::Value plan_handle(Napi::Env env, PlanHandle plan);

}  // namespace spark::napi
