#include "napi/cuda_plan.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/stream.h"
#include "core/error.h"
#include "napi/cuda_call.h"
#include "napi/job.h"

namespace spark::napi {

CudaPlan::CudaPlan(cuda::Device& device, const Napi::Value& memory)
    : device_(device), memory_(cuda::memory_choice(device)), recording_(device) {
  if (!memory.IsObject()) return;
  const Napi::Object buffers = memory.As<Napi::Object>();
  know(buffers.Get("scratch"), Role::kScratch);
  know(buffers.Get("constant"), Role::kConstant);
  know(buffers.Get("state"), Role::kState);
}

void CudaPlan::know(const Napi::Value& buffers, Role role) {
  if (!buffers.IsArray()) return;
  const Napi::Array array = buffers.As<Napi::Array>();
  for (uint32_t i = 0; i < array.Length(); ++i) {
    const Napi::Value buffer = array.Get(i);
    if (buffer.IsArrayBuffer()) known_.emplace_back(Napi::Persistent(buffer.As<Napi::ArrayBuffer>()), role);
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
  auto found = areas_.find(buffer.Data());
  if (found == areas_.end()) {
    found = areas_.emplace(buffer.Data(), add_area(buffer)).first;
    found->second.read = access != Access::kWrite || bytes < found->second.bytes;
  }
  Area& area = found->second;
  area.written = area.written || access != Access::kRead;
  const Block& copy = area.on_device ? *area.on_device : *area.host;
  return copy.data + (static_cast<const std::byte*>(data) - static_cast<const std::byte*>(buffer.Data()));
}

CudaPlan::Area CudaPlan::add_area(Napi::ArrayBuffer buffer) {
  const size_t bytes = buffer.ByteLength();
  const auto known = std::find_if(known_.begin(), known_.end(), [&](const auto& entry) {
    return entry.first.Value().Data() == buffer.Data();
  });
  const Role role = known == known_.end() ? Role::kPassing : known->second;
  Area area{Napi::Persistent(buffer), role, nullptr, nullptr, bytes, false, false};
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

void CudaPlan::before_work() {
  if (*in_flight_) device_.stream().synchronize();  // work that failed half-way
  *in_flight_ = true;
}

// A promise for what is enqueued, after which what was written of the areas of `role` is in their buffers.
// Those who hold `finally` call `done` when the last of them lets go.
Napi::Value CudaPlan::passed(Napi::Env env, Role role, std::shared_ptr<void> keep,
                             std::shared_ptr<void> finally) {
  return when_passed(
      env, device_, [in_flight = in_flight_] { *in_flight = false; },
      [this, role, keep = std::move(keep), finally = std::move(finally)](Napi::Env) {
        for (const auto& [data, area] : areas_) {
          void* target = area.buffer.Value().Data();  // null when it has been detached meanwhile
          if (area.role == role && area.written && target == data) {
            std::memcpy(target, area.host->data, area.bytes);
          }
        }
      });
}

namespace {

// Calls `done` when the last one who holds it lets go.
std::shared_ptr<void> at_end(std::function<void()> done) {
  return {nullptr, [done = std::move(done)](void*) { done(); }};
}

}  // namespace

Napi::Value CudaPlan::run(Napi::Env env, const std::function<void()>& steps, std::shared_ptr<void> keep,
                          std::function<void()> done) {
  const std::shared_ptr<void> finally = at_end(std::move(done));
  const cuda::DeviceScope scope(device_);
  before_work();
  const auto moves = [](const Area& area) { return area.role == Role::kPassing && area.on_device; };
  for (const auto& [data, area] : areas_) {
    if (area.role == Role::kPassing && area.read) std::memcpy(area.host->data, data, area.bytes);
  }
  const auto enqueue = [this, moves, steps] {
    recording_.run([&] {
      for (const auto& [_, area] : areas_) {
        if (moves(area) && area.read) copy(*area.on_device, *area.host, area.bytes);
      }
      steps();
      for (const auto& [_, area] : areas_) {
        if (moves(area) && area.written) copy(*area.host, *area.on_device, area.bytes);
      }
    });
  };
  const auto result = [this, keep = std::move(keep), finally](Napi::Env env) {
    const cuda::DeviceScope scope(device_);
    return passed(env, Role::kPassing, keep, finally);
  };
  if (recording_.has_run()) {
    enqueue();
    return result(env);
  }
  return start_job(
      env,
      [this, enqueue] {
        const cuda::DeviceScope scope(device_);
        enqueue();
      },
      {}, result);  // whose promise is that of the job
}

Napi::Value CudaPlan::fetch(Napi::Env env, std::shared_ptr<void> keep, std::function<void()> done) {
  const std::shared_ptr<void> finally = at_end(std::move(done));
  const cuda::DeviceScope scope(device_);
  before_work();
  for (const auto& [_, area] : areas_) {
    if (area.role == Role::kState) copy(*area.host, *area.on_device, area.bytes);
  }
  return passed(env, Role::kState, std::move(keep), finally);
}

Napi::Value CudaPlan::store(Napi::Env env, std::shared_ptr<void> keep, std::function<void()> done) {
  const std::shared_ptr<void> finally = at_end(std::move(done));
  const cuda::DeviceScope scope(device_);
  before_work();
  for (const auto& [data, area] : areas_) {
    if (area.role != Role::kState) continue;
    std::memcpy(area.host->data, data, area.bytes);
    copy(*area.on_device, *area.host, area.bytes);
  }
  return when_passed(
      env, device_, [in_flight = in_flight_] { *in_flight = false; },
      [keep = std::move(keep), finally](Napi::Env) {});
}

}  // namespace spark::napi
