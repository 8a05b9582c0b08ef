// device_plan.cc: plans on a device: operands, copies, runs.
#include "backend/cuda/runtime/device_plan.h"

#include <cstring>

#include "backend/cuda/runtime/memory.h"
#include "backend/cuda/runtime/stream.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

Range addresses(const void* data, Range bytes) {
  const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  return {begin + bytes.begin, begin + bytes.end};
}

}  // namespace

DevicePlan::DevicePlan(Device& device, bool graphs)
    : device_(device), memory_(memory_choice(device)), recording_(device, graphs) {}

// What the device may still be using is given back only when it is done. When even waiting fails the context
// is ruined and uses nothing.
DevicePlan::~DevicePlan() {
  if (!*in_flight_) return;
  try {
    DeviceScope scope(device_);
    device_.stream().synchronize();
  } catch (const Error&) {
  }
}

void DevicePlan::declare(const void* data, int64_t bytes, Role role) {
  declared_[role].add(addresses(data, {0, bytes}));
}

DevicePlan::Role DevicePlan::role_of(const void* data, Range touched) const {
  for (const auto& [role, ranges] : declared_) {
    if (ranges.covers(addresses(data, touched))) return role;
  }
  return Role::kPassing;
}

bool DevicePlan::reaches(const void* data, int64_t bytes) {
  std::shared_ptr<Block> block = Block::find(data, bytes);
  if (!block || !cuda::reaches(device_, *block)) return false;
  blocks_.push_back(std::move(block));
  return true;
}

void* DevicePlan::put(std::byte* buffer, int64_t buffer_bytes, const void* data, const Footprint& touched,
                      Access access) {
  const Role role = role_of(data, touched.span());
  const std::pair<std::byte*, Role> key{buffer, role};
  auto found = areas_.find(key);
  if (found == areas_.end()) found = areas_.emplace(key, make_area(buffer, buffer_bytes, role)).first;
  Area& area = found->second;
  const int64_t offset = static_cast<const std::byte*>(data) - buffer;
  uses_.push_back({&area, touched.scaled(1, offset), access});
  const Block& copy = area.on_device ? *area.on_device : *area.host;
  return copy.data + offset;
}

void DevicePlan::end_step() {
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

DevicePlan::Area DevicePlan::make_area(const void* buffer, int64_t bytes, Role role) {
  Area area{role, nullptr, nullptr, bytes, {}, {}};
  const bool passes = role == Role::kPassing;
  const bool moves = passes && memory_.passing == MemoryKind::kDevice;
  if (!passes || moves)
    area.on_device = allocate(device_, passes ? memory_.passing : memory_.resident, bytes);
  if (passes || role == Role::kState) {
    area.host = allocate(device_, moves || !passes ? MemoryKind::kPinned : memory_.passing, bytes);
  }
  if (role == Role::kConstant || role == Role::kState) upload(*area.on_device, buffer, bytes);
  return area;
}

// Waits, since the pinned memory between is freed at once.
void DevicePlan::upload(const Block& target, const void* data, int64_t bytes) {
  const std::shared_ptr<Block> pinned = allocate(device_, MemoryKind::kPinned, bytes);
  std::memcpy(pinned->data, data, bytes);
  copy(target, *pinned, {0, bytes});
  device_.stream().synchronize();
}

void DevicePlan::copy(const Block& target, const Block& source, Range range) {
  const auto address = [&](const Block& block) {
    return reinterpret_cast<CUdeviceptr>(block.data + range.begin);
  };
  device_.check(
      device_.driver.cuMemcpyAsync(address(target), address(source), range.size(), device_.stream().handle()),
      "copying operands");
}

void DevicePlan::begin() {
  if (*in_flight_) device_.stream().synchronize();  // work that failed half-way
  *in_flight_ = true;
}

void DevicePlan::read_inputs() {
  for (const auto& [key, area] : areas_) {
    if (area.role != Role::kPassing) continue;
    const std::byte* data = key.first;
    area.read.each(
        [&](Range range) { std::memcpy(area.host->data + range.begin, data + range.begin, range.size()); });
  }
}

void DevicePlan::enqueue(const std::function<void()>& steps) {
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

void DevicePlan::enqueue_fetch() {
  for (const auto& [_, area] : areas_) {
    if (area.role != Role::kState) continue;
    area.written.spans().each([&](Range range) { copy(*area.host, *area.on_device, range); });
  }
}

void DevicePlan::enqueue_store() {
  for (const auto& [key, area] : areas_) {
    if (area.role != Role::kState) continue;
    std::memcpy(area.host->data, key.first, area.bytes);
    copy(*area.on_device, *area.host, {0, area.bytes});
  }
}

void DevicePlan::write_back(Role role, const std::function<bool(const void* buffer)>& is_attached) {
  for (const auto& [key, area] : areas_) {
    if (area.role != role || !is_attached(key.first)) continue;
    area.written.copy(key.first, area.host->data);
  }
}

}  // namespace spark::cuda
