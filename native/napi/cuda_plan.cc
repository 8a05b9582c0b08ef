#include "napi/cuda_plan.h"

#include <cstring>

#include "backend/cuda/runtime/stream.h"
#include "core/error.h"
#include "napi/cuda_call.h"
#include "napi/job.h"

namespace spark::napi {
namespace {

Range addresses(const void* data, Range bytes) {
  const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  return {begin + bytes.begin, begin + bytes.end};
}

}  // namespace

CudaPlan::CudaPlan(cuda::Device& device, const Napi::Value& memory, bool graphs)
    : device_(device), memory_(cuda::memory_choice(device)), recording_(device, graphs) {
  if (!memory.IsObject()) return;
  const Napi::Object roles = memory.As<Napi::Object>();
  know(roles.Get("scratch"), Role::kScratch);
  know(roles.Get("constant"), Role::kConstant);
  know(roles.Get("state"), Role::kState);
}

void CudaPlan::know(const Napi::Value& memory, Role role) {
  if (!memory.IsArray()) return;
  const Napi::Array array = memory.As<Napi::Array>();
  for (uint32_t i = 0; i < array.Length(); ++i) {
    const Napi::Value each = array.Get(i);
    if (each.IsTypedArray()) {
      const Napi::TypedArray view = each.As<Napi::TypedArray>();
      const auto offset = static_cast<int64_t>(view.ByteOffset());
      know(view.ArrayBuffer(), {offset, offset + static_cast<int64_t>(view.ByteLength())}, role);
    } else if (each.IsArrayBuffer()) {
      Napi::ArrayBuffer buffer = each.As<Napi::ArrayBuffer>();
      know(buffer, {0, static_cast<int64_t>(buffer.ByteLength())}, role);
    }
  }
}

void CudaPlan::know(Napi::ArrayBuffer buffer, Range bytes, Role role) {
  if (buffer.IsArrayBuffer()) known_[role].add(addresses(buffer.Data(), bytes));  // others put() refuses
}

CudaPlan::Role CudaPlan::role_of(const void* data, Range touched) const {
  for (const auto& [role, ranges] : known_) {
    if (ranges.covers(addresses(data, touched))) return role;
  }
  return Role::kPassing;
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
  return [this](Napi::Object array, void* data, const Footprint& touched, Access access) {
    return put(array, data, touched, access);
  };
}

void* CudaPlan::put(Napi::Object array, void* data, const Footprint& touched, Access access) {
  const int64_t bytes = touched.span().end;
  if (bytes == 0) return nullptr;  // no address of the host reaches the device
  std::shared_ptr<Block> block = Block::find(data, bytes);
  if (block && cuda::reaches(device_, *block)) {
    blocks_.push_back(std::move(block));
    return data;
  }
  Napi::ArrayBuffer buffer = array.As<Napi::TypedArray>().ArrayBuffer();
  if (!buffer.IsArrayBuffer()) {
    throw Error("ERR_UNSUPPORTED", "the cuda backend reads no SharedArrayBuffer; copy it: array.slice()");
  }
  const Role role = role_of(data, touched.span());
  const std::pair<const void*, Role> key{buffer.Data(), role};
  auto found = areas_.find(key);
  if (found == areas_.end()) found = areas_.emplace(key, add_area(buffer, role)).first;
  Area& area = found->second;
  const int64_t at = static_cast<const std::byte*>(data) - static_cast<const std::byte*>(buffer.Data());
  uses_.push_back({&area, touched.scaled(1, at), access});
  const Block& copy = area.on_device ? *area.on_device : *area.host;
  return copy.data + at;
}

void CudaPlan::end_step() {
  for (const auto& [area, touched, access] : uses_) {
    const bool copied = area->role == Role::kPassing && access != Access::kWrite;
    if (copied && !area->written.covers(touched.span())) area->read.add(touched.span());
  }
  for (const auto& [area, touched, access] : uses_) {
    const bool copied = area->role == Role::kPassing || area->role == Role::kState;
    if (copied && access != Access::kRead) area->written.add(touched);
  }
  uses_.clear();
}

CudaPlan::Area CudaPlan::add_area(Napi::ArrayBuffer buffer, Role role) {
  const auto bytes = static_cast<int64_t>(buffer.ByteLength());
  Area area{Napi::Persistent(buffer), role, nullptr, nullptr, bytes, {}, {}};
  const bool passes = role == Role::kPassing;
  const bool moves = passes && memory_.passing == MemoryKind::kDevice;
  if (!passes || moves) {
    area.on_device = cuda::allocate(device_, passes ? memory_.passing : memory_.resident, bytes);
  }
  if (passes || role == Role::kState) {
    area.host = cuda::allocate(device_, moves || !passes ? MemoryKind::kPinned : memory_.passing, bytes);
  }
  if (role == Role::kConstant || role == Role::kState) upload(*area.on_device, buffer.Data(), bytes);
  return area;
}

// Waits, since the pinned memory between is freed at once.
void CudaPlan::upload(const Block& target, const void* data, int64_t bytes) {
  const std::shared_ptr<Block> pinned = cuda::allocate(device_, MemoryKind::kPinned, bytes);
  std::memcpy(pinned->data, data, bytes);
  copy(target, *pinned, {0, bytes});
  device_.stream().synchronize();
}

void CudaPlan::copy(const Block& target, const Block& source, Range range) {
  const auto address = [&](const Block& block) {
    return reinterpret_cast<cuda::CUdeviceptr>(block.data + range.begin);
  };
  device_.check(
      device_.driver.cuMemcpyAsync(address(target), address(source), range.size(), device_.stream().handle()),
      "copying operands");
}

void CudaPlan::before_work() {
  if (*in_flight_) device_.stream().synchronize();  // work that failed half-way
  *in_flight_ = true;
}

// A promise for what is enqueued, after which what was written of the areas of `role` is in their buffers.
Napi::Value CudaPlan::passed(Napi::Env env, Role role, std::shared_ptr<void> keep) {
  return when_passed(
      env, device_, [in_flight = in_flight_] { *in_flight = false; },
      [this, role, keep = std::move(keep)](Napi::Env) {
        for (const auto& [key, area] : areas_) {
          if (area.role != role) continue;
          void* target = area.buffer.Value().Data();  // null when it has been detached meanwhile
          if (target == key.first) area.written.copy(static_cast<std::byte*>(target), area.host->data);
        }
      });
}

void CudaPlan::enqueue(const std::function<void()>& steps) {
  const auto moves = [](const Area& area) { return area.role == Role::kPassing && area.on_device; };
  recording_.run([&] {
    for (const auto& [_, area] : areas_) {
      if (moves(area)) area.read.each([&](Range range) { copy(*area.on_device, *area.host, range); });
    }
    steps();
    for (const auto& [_, area] : areas_) {
      if (!moves(area)) continue;
      area.written.spans().each([&](Range range) { copy(*area.host, *area.on_device, range); });
    }
  });
}

Napi::Value CudaPlan::run(Napi::Env env, const std::function<void()>& steps, std::shared_ptr<void> keep) {
  const cuda::DeviceScope scope(device_);
  before_work();
  for (const auto& [key, area] : areas_) {
    if (area.role != Role::kPassing) continue;
    const auto* data = static_cast<const std::byte*>(key.first);
    area.read.each(
        [&](Range range) { std::memcpy(area.host->data + range.begin, data + range.begin, range.size()); });
  }
  const auto result = [this, keep](Napi::Env env) {
    const cuda::DeviceScope scope(device_);
    return passed(env, Role::kPassing, keep);
  };
  if (recording_.has_run()) {
    enqueue(steps);
    return result(env);
  }
  return start_job(
      env,
      [this, steps, keep] {
        const cuda::DeviceScope scope(device_);
        enqueue(steps);
      },
      {}, result);  // whose promise is that of the job
}

Napi::Value CudaPlan::fetch(Napi::Env env, std::shared_ptr<void> keep) {
  const cuda::DeviceScope scope(device_);
  before_work();
  for (const auto& [_, area] : areas_) {
    if (area.role != Role::kState) continue;
    area.written.spans().each([&](Range range) { copy(*area.host, *area.on_device, range); });
  }
  return passed(env, Role::kState, std::move(keep));
}

Napi::Value CudaPlan::store(Napi::Env env, std::shared_ptr<void> keep) {
  const cuda::DeviceScope scope(device_);
  before_work();
  for (const auto& [key, area] : areas_) {
    if (area.role != Role::kState) continue;
    std::memcpy(area.host->data, key.first, area.bytes);
    copy(*area.on_device, *area.host, {0, area.bytes});
  }
  return when_passed(
      env, device_, [in_flight = in_flight_] { *in_flight = false; }, [keep = std::move(keep)](Napi::Env) {});
}

}  // namespace spark::napi
