// memory.cc: device memory: blocks and pools.
#include "backend/cuda/runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/stream.h"
#include "core/error.h"

namespace spark::cuda {
HostMemory free_memory(Device& device, MemoryKind kind) {
  if (kind != MemoryKind::kDevice || device.attributes.integrated) return host_memory();
  size_t free = 0, total = 0;
  device.check(device.driver.cuMemGetInfo(&free, &total), "cuMemGetInfo");
  return {free, 0};
}

namespace {

constexpr unsigned kAttachGlobal = 1;  // CU_MEM_ATTACH_GLOBAL
constexpr unsigned kPortable = 1;      // CU_MEMHOSTALLOC_PORTABLE
constexpr size_t kSmallestPiece = 4 << 10;
constexpr size_t kLargeStep = size_t{1} << 20;

constexpr int kLocationDevice = 1, kLocationHost = 2;  // CU_MEM_LOCATION_TYPE_…

CUmemLocation location(const Device& device, bool gpu) {
  return gpu ? CUmemLocation{kLocationDevice, device.ordinal} : CUmemLocation{kLocationHost, 0};
}

CUdeviceptr device_address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

void* allocate_raw(Device& device, MemoryKind kind, size_t bytes) {
  device.require_healthy();
  require_fits(kind, bytes, free_memory(device, kind));
  const Driver& driver = device.driver;
  const std::string doing = message("allocating ", bytes, " bytes of ", memory_kind_name(kind), " memory");
  CUdeviceptr address = 0;
  void* host = nullptr;
  switch (kind) {
    case MemoryKind::kManaged:
      if (!device.attributes.managed) {
        throw Error("ERR_UNSUPPORTED",
                    message("device ", device.ordinal, " has no managed memory; use kind 'pinned'"));
      }
      device.check(driver.cuMemAllocManaged(&address, bytes, kAttachGlobal), doing);
      return reinterpret_cast<void*>(address);
    case MemoryKind::kDevice:
      device.check(driver.cuMemAlloc(&address, bytes), doing);
      return reinterpret_cast<void*>(address);
    case MemoryKind::kPinned:
      device.check(driver.cuMemHostAlloc(&host, bytes, kPortable), doing);
      return host;
    case MemoryKind::kHost:
      break;
  }
  throw Error("ERR_INTERNAL", "host memory does not come from the driver");
}

// Failures are ignored: on a ruined context every free fails, and nobody could act on it.
void free_raw(Device& device, MemoryKind kind, void* data) {
  try {
    DeviceScope scope(device);
    if (kind == MemoryKind::kPinned) {
      device.driver.cuMemFreeHost(data);
    } else {
      device.driver.cuMemFree(device_address(data));
    }
  } catch (const Error&) {
  }
}

size_t rounded(size_t bytes) {
  if (bytes > kLargeStep) return (bytes + kLargeStep - 1) / kLargeStep * kLargeStep;
  size_t size = kSmallestPiece;
  while (size < bytes) size *= 2;
  return size;
}

}  // namespace

std::shared_ptr<Block> allocate(Device& device, MemoryKind kind, size_t bytes) {
  DeviceScope scope(device);
  void* data = allocate_raw(device, kind, bytes);
  device.live_blocks += 1;
  return Block::adopt(kind, data, bytes, device.ordinal, [&device, kind, data] {
    free_raw(device, kind, data);
    device.live_blocks -= 1;
  });
}

std::shared_ptr<Block> allocate_apart(Device& device, MemoryKind kind, size_t bytes) {
  bytes = in_words(bytes);
  if (kind != MemoryKind::kDevice) return allocate(device, kind, bytes);
  DeviceScope scope(device);
  void* memory = allocate_raw(device, kind, bytes);
  constexpr int kUntouched = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* stand_in = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kUntouched, -1, 0);
  if (stand_in == MAP_FAILED) {
    free_raw(device, kind, memory);
    throw Error("ERR_OUT_OF_MEMORY", message("the machine refused addresses for ", bytes, " bytes"));
  }
  device.live_blocks += 1;
  const auto release = [&device, kind, memory, stand_in, bytes] {
    free_raw(device, kind, memory);
    munmap(stand_in, bytes);
    device.live_blocks -= 1;
  };
  return Block::adopt(kind, stand_in, bytes, device.ordinal, release, memory);
}

void zero(Device& device, const Block& block) {
  DeviceScope scope(device);
  device.check(
      device.driver.cuMemsetD8Async(device_address(block.data), 0, block.bytes, device.stream().handle()),
      "clearing memory");
  device.stream().synchronize();
}

bool takes_hints(const Device& device) {
  return device.driver.cuMemAdvise && device.driver.cuMemPrefetchAsync;
}

void prefetch(Device& device, const Block& block, bool to_gpu) {
  DeviceScope scope(device);
  device.check(device.driver.cuMemPrefetchAsync(device_address(block.data), block.bytes,
                                                location(device, to_gpu), 0, device.stream().handle()),
               "prefetching managed memory");
}

void advise(Device& device, const Block& block, int advice, bool gpu) {
  DeviceScope scope(device);
  device.check(
      device.driver.cuMemAdvise(device_address(block.data), block.bytes, advice, location(device, gpu)),
      "advising on managed memory");
}

bool reaches(const Device& device, const Block& block) {
  switch (block.kind) {
    case MemoryKind::kManaged:
    case MemoryKind::kPinned:
      return true;
    case MemoryKind::kDevice:
      return block.device == device.ordinal;
    case MemoryKind::kHost:
      return device.attributes.pageable;
  }
  return false;
}

Pool::Pool(Stream& stream, MemoryKind kind, size_t max_kept)
    : stream_(stream), device_(stream.device()), kind_(kind), max_kept_(max_kept) {}

Pool::Piece Pool::take(size_t bytes) {
  const size_t wanted = rounded(bytes);
  const DeviceScope scope(device_);
  device_.live_blocks += 1;
  {
    std::lock_guard lock(mutex_);
    const auto found = kept_.lower_bound(wanted);
    if (found != kept_.end() && found->first <= wanted + wanted / 2) {
      const Piece piece{found->second, found->first};
      kept_bytes_ -= piece.bytes;
      kept_.erase(found);
      return piece;
    }
  }
  try {
    try {
      return {allocate_raw(device_, kind_, wanted), wanted};
    } catch (const Error& error) {
      if (std::string_view(error.code) != "ERR_OUT_OF_MEMORY" || max_kept_ == kKeepAll) throw;
      trim();
      return {allocate_raw(device_, kind_, wanted), wanted};
    }
  } catch (...) {
    device_.live_blocks -= 1;
    throw;
  }
}

void Pool::give(Piece piece) {
  device_.live_blocks -= 1;
  {
    std::lock_guard lock(mutex_);
    if (max_kept_ == kKeepAll || kept_bytes_ + piece.bytes <= max_kept_) {
      kept_.emplace(piece.bytes, piece.data);
      kept_bytes_ += piece.bytes;
      return;
    }
  }
  free_when_passed(piece);
}

void Pool::trim() {
  const std::multimap<size_t, void*> kept = take_kept();
  if (kept.empty()) return;
  stream_.synchronize();  // enqueued work may still use device memory
  for (const auto& [bytes, data] : kept) free_raw(device_, kind_, data);
}

void Pool::trim_when_passed() {
  for (const auto& [bytes, data] : take_kept()) free_when_passed({data, bytes});
}

std::multimap<size_t, void*> Pool::take_kept() {
  const std::lock_guard lock(mutex_);
  kept_bytes_ = 0;
  return std::exchange(kept_, {});
}

void Pool::free_when_passed(Piece piece) {
  try {
    stream_.then(
        [&device = device_, kind = kind_, piece](std::exception_ptr) { free_raw(device, kind, piece.data); });
  } catch (const Error&) {
    free_raw(device_, kind_, piece.data);
  }
}

Scratch::Scratch(size_t bytes)
    : pool_(Redirection::current() ? Redirection::current()->scratch : Device::current().stream().scratch()),
      piece_(pool_.take(bytes)) {}

}  // namespace spark::cuda
