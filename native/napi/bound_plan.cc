// bound_plan.cc: what keeps the operands of a plan alive.
#include "napi/bound_plan.h"

#include "core/error.h"
#include "napi/job_memory.h"

namespace spark::napi {
namespace {

const void* address_of(const Napi::TypedArray& array) {
  void* data = nullptr;
  napi_get_typedarray_info(array.Env(), array, nullptr, nullptr, &data, nullptr, nullptr);
  return data;
}

}  // namespace

void HeldMemory::keep(std::vector<Napi::ObjectReference> arrays, std::vector<std::shared_ptr<Block>> blocks) {
  for (Napi::ObjectReference& reference : arrays) {
    const Napi::TypedArray array = reference.Value().As<Napi::TypedArray>();
    Napi::ArrayBuffer buffer = array.ArrayBuffer();
    if (!buffer.IsArrayBuffer()) {
      if (known_.insert(address_of(array)).second) shared_.push_back(std::move(reference));
    } else if (known_.insert(buffer.Data()).second) {
      hold(buffer);
      buffers_.push_back({Napi::Persistent(buffer), buffer.Data()});
    }
  }
  for (std::shared_ptr<Block>& block : blocks) {
    if (known_.insert(block.get()).second) blocks_.push_back(std::move(block));
  }
}

void HeldMemory::expect_attached() const {
  for (const Buffer& buffer : buffers_) {
    if (buffer.buffer.Value().Data() != buffer.data) {
      throw Error("ERR_DISPOSED", "memory that the plan works on has been detached or disposed");
    }
  }
}

Napi::Value plan_handle(Napi::Env env, PlanHandle plan) {
  return Napi::External<PlanHandle>::New(env, new PlanHandle(std::move(plan)),
                                         [](Napi::BasicEnv, PlanHandle* handle) { delete handle; });
}

}  // namespace spark::napi
