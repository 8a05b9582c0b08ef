// staging.cc: copies of host operands through pinned memory.
#include "backend/cuda/runtime/staging.h"

#include <cstring>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/stream.h"
#include "core/error.h"

namespace spark::cuda {

Staging::~Staging() {
  if (!passed_ && !(operands_.empty() && blocks_.empty())) {
    try {
      wait();
    } catch (const Error&) {  // the context is ruined and uses nothing
    }
  }
  for (const Operand& operand : operands_) {
    if (operand.on_device.data) device_.stream().scratch().give(operand.on_device);
    device_.staging().give(operand.pinned);
  }
}

void Staging::copy(const void* target, const void* source, size_t bytes) {
  const auto address = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  device_.check(
      device_.driver.cuMemcpyAsync(address(target), address(source), bytes, device_.stream().handle()),
      "copying operands");
}

void* Staging::add(const void* data, size_t bytes, Access access) {
  operands_.push_back({device_.staging().take(bytes), {}, bytes, access});
  Operand& operand = operands_.back();
  if (access != Access::kWrite) std::memcpy(operand.pinned.data, data, bytes);
  if (device_.attributes.integrated) return operand.pinned.data;
  operand.on_device = device_.stream().scratch().take(bytes);
  if (access != Access::kWrite) copy(operand.on_device.data, operand.pinned.data, bytes);
  return operand.on_device.data;
}

void Staging::fetch() {
  for (const Operand& operand : operands_) {
    if (operand.access == Access::kRead || !operand.on_device.data) continue;
    copy(operand.pinned.data, operand.on_device.data, operand.bytes);
  }
}

void Staging::wait() {
  device_.stream().synchronize();
  passed_ = true;
}

}  // namespace spark::cuda
