#include "napi/cuda_plan.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/stream.h"
#include "core/error.h"
#include "napi/cuda_call.h"

namespace spark::napi {

CudaPlan::CudaPlan(cuda::Device& device, const Napi::Value& resident) : device_(device), recording_(device) {
  if (!resident.IsArray()) return;
  const Napi::Array buffers = resident.As<Napi::Array>();
  for (uint32_t i = 0; i < buffers.Length(); ++i) {
    const Napi::Value buffer = buffers.Get(i);
    if (buffer.IsArrayBuffer()) resident_.push_back(Napi::Persistent(buffer.As<Napi::ArrayBuffer>()));
  }
}

// What the device may still be using is given back only when it is done. When even waiting fails the context
// is ruined and uses nothing.
CudaPlan::~CudaPlan() {
  if (!*in_flight_) return;
  try {
    cuda::DeviceScope scope(device_);
    device_.stream().synchronize();
  } catch (const Error&) {
  }
}

Place CudaPlan::place() {
  return [this](Napi::Object array, void* data, size_t bytes, Access access) {
    return put(array, data, bytes, access);
  };
}

void* CudaPlan::put(Napi::Object array, void* data, size_t bytes, Access access) {
  if (bytes == 0) return data;
  std::shared_ptr<Block> block = Block::find(data, bytes);
  if (block && cuda::reaches(device_, *block)) {
    blocks_.push_back(std::move(block));
    return data;
  }
  Napi::ArrayBuffer buffer = array.As<Napi::TypedArray>().ArrayBuffer();
  auto found = areas_.find(buffer.Data());
  if (found == areas_.end()) found = areas_.emplace(buffer.Data(), add_area(buffer)).first;
  Area& area = found->second;
  area.written = area.written || access != Access::kRead;
  const Block& copy = area.on_device ? *area.on_device : *area.pinned;
  return copy.data + (static_cast<const std::byte*>(data) - static_cast<const std::byte*>(buffer.Data()));
}

CudaPlan::Area CudaPlan::add_area(Napi::ArrayBuffer buffer) {
  const size_t bytes = buffer.ByteLength();
  Area area{Napi::Persistent(buffer), nullptr, nullptr, bytes, false};
  const bool resident = std::any_of(resident_.begin(), resident_.end(),
                                    [&](const auto& known) { return known.Value().Data() == buffer.Data(); });
  if (resident || !device_.attributes.integrated) {
    area.on_device = cuda::allocate(device_, MemoryKind::kDevice, bytes);
  }
  if (resident) {
    upload(*area.on_device, buffer.Data(), bytes);
  } else {
    area.pinned = cuda::allocate(device_, MemoryKind::kPinned, bytes);
  }
  return area;
}

// Waits, since the pinned memory between is freed at once.
void CudaPlan::upload(const Block& target, const void* data, size_t bytes) {
  const std::shared_ptr<Block> pinned = cuda::allocate(device_, MemoryKind::kPinned, bytes);
  std::memcpy(pinned->data, data, bytes);
  copy(target, *pinned, bytes);
  device_.stream().synchronize();
}

void CudaPlan::copy(const Block& target, const Block& source, size_t bytes) {
  const auto address = [](const Block& block) { return reinterpret_cast<cuda::CUdeviceptr>(block.data); };
  device_.check(
      device_.driver.cuMemcpyAsync(address(target), address(source), bytes, device_.stream().handle()),
      "copying operands");
}

Napi::Value CudaPlan::run(Napi::Env env, const std::function<void()>& steps, std::shared_ptr<void> keep,
                          std::function<void()> done) {
  // Calls `done` when the last one who holds it lets go.
  const std::shared_ptr<void> finally(nullptr, [done = std::move(done)](void*) { done(); });
  const cuda::DeviceScope scope(device_);
  if (*in_flight_) device_.stream().synchronize();  // a run that failed half-way
  for (const auto& [data, area] : areas_) {
    if (area.pinned) std::memcpy(area.pinned->data, data, area.bytes);
  }
  *in_flight_ = true;
  recording_.run([&] {
    for (const auto& [_, area] : areas_) {
      if (area.pinned && area.on_device) copy(*area.on_device, *area.pinned, area.bytes);
    }
    steps();
    for (const auto& [_, area] : areas_) {
      if (area.pinned && area.on_device && area.written) copy(*area.pinned, *area.on_device, area.bytes);
    }
  });
  return when_passed(
      env, device_, [in_flight = in_flight_] { *in_flight = false; },
      [this, keep, finally](Napi::Env) {
        for (const auto& [data, area] : areas_) {
          void* target = area.buffer.Value().Data();  // null when it has been detached meanwhile
          if (area.pinned && area.written && target == data) {
            std::memcpy(target, area.pinned->data, area.bytes);
          }
        }
      });
}

}  // namespace spark::napi
