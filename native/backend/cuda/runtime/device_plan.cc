// device_plan.cc: plans on a device: operands, copies, runs.
#include "backend/cuda/runtime/device_plan.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/runtime/memory.h"
#include "backend/cuda/runtime/stream.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

constexpr unsigned kTiming = 0;  // CU_EVENT_DEFAULT

Range addresses(const void* data, Range bytes) {
  const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  return {begin + bytes.begin, begin + bytes.end};
}

}  // namespace

DevicePlan::DevicePlan(Stream& stream, bool graphs)
    : stream_(stream),
      device_(stream.device()),
      memory_(memory_choice(device_)),
      recording_(stream, graphs) {}

// What the device may still be using is given back only when it is done. When even waiting fails the context
// is ruined and uses nothing.
DevicePlan::~DevicePlan() {
  try {
    DeviceScope scope(device_);
    if (*in_flight_) stream_.synchronize();
    for (CUevent mark : marks_)
      if (mark) device_.driver.cuEventDestroy(mark);
  } catch (const Error&) {
  }
}

void DevicePlan::declare(const void* data, int64_t bytes, Role role) {
  if (role == Role::kShared) {
    int64_t& known = shared_[static_cast<std::byte*>(const_cast<void*>(data))];
    known = std::max(known, bytes);
  } else {
    declared_[role].add(addresses(data, {0, bytes}));
  }
}

DevicePlan::SharedArray DevicePlan::shared_array(const void* data, Range touched) const {
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(data));
  auto found = shared_.upper_bound(begin);
  if (found == shared_.begin()) return {};
  --found;
  const bool covers = begin + touched.end <= found->first + found->second;
  return covers ? SharedArray{found->first, found->second} : SharedArray{};
}

DevicePlan::Role DevicePlan::role_of(const void* data, Range touched) const {
  for (const auto& [role, ranges] : declared_) {
    if (ranges.covers(addresses(data, touched))) return role;
  }
  return Role::kPassing;
}

void* DevicePlan::reach(const void* data, int64_t bytes) {
  std::shared_ptr<Block> block = Block::find(data, bytes);
  if (!block || !reaches(device_, *block)) return nullptr;
  blocks_.push_back(block);
  return on_device(*block, data);
}

void* DevicePlan::put(std::byte* buffer, int64_t buffer_bytes, const void* data, const Footprint& touched,
                      Access access) {
  Role role = role_of(data, touched.span());
  const SharedArray shared = shared_array(data, touched.span());
  if (role == Role::kPassing && shared.bytes > 0 && access == Access::kRead) {
    // Others of the ArrayBuffer may change.
    role = Role::kShared;
    buffer = shared.data;
    buffer_bytes = shared.bytes;
  }
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
  Area area{role, nullptr, nullptr, nullptr, bytes, {}, {}};
  if (role == Role::kShared) {
    area.shared = Resident::of(device_, static_cast<const std::byte*>(buffer), bytes, memory_.resident);
    area.on_device = area.shared->block();
    return area;
  }
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
  stream_.synchronize();
}

void DevicePlan::copy(const Block& target, const Block& source, Range range) {
  const auto address = [&](const Block& block) {
    return reinterpret_cast<CUdeviceptr>(block.data + range.begin);
  };
  device_.check(
      device_.driver.cuMemcpyAsync(address(target), address(source), range.size(), stream_.handle()),
      "copying operands");
}

void DevicePlan::begin() {
  if (*in_flight_) stream_.synchronize();  // work that failed half-way
  *in_flight_ = true;
}

void DevicePlan::upload_shared() {
  for (const auto& [_, area] : areas_) {
    if (area.shared) area.shared->upload();
  }
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

void DevicePlan::mark(size_t i) {
  if (!is_timed_) return;
  const Driver& driver = device_.driver;
  if (!marks_[i]) device_.check(driver.cuEventCreate(&marks_[i], kTiming), "cuEventCreate");
  device_.check(driver.cuEventRecord(marks_[i], stream_.handle()), "cuEventRecord");
  is_marked_ = i == 1;
}

double DevicePlan::run_ms() {
  is_timed_ = true;
  if (!is_marked_) return -1;
  float milliseconds = 0;
  const CUresult result = device_.driver.cuEventElapsedTime(&milliseconds, marks_[0], marks_[1]);
  device_.check(result, "cuEventElapsedTime");
  return milliseconds;
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
