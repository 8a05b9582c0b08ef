// block.cc: the registry of memory blocks by address.
#include "core/block.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>

#include "core/error.h"

namespace spark {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Every live block by address, and the counts. ~Block takes the mutex: no reference to a block may be dropped
// by whoever holds it.
struct Registry {
  struct Entry {
    std::weak_ptr<Block> block;
    size_t bytes;
  };

  std::mutex mutex;
  std::map<uintptr_t, Entry> blocks;
  MemoryStats stats{};

  static Registry& get() {
    static Registry* registry = new Registry;  // leaked: finalizers run late
    return *registry;
  }
};

size_t total(const MemoryStats& stats) {
  size_t sum = 0;
  for (const size_t bytes : stats.bytes) sum += bytes;
  return sum;
}

uintptr_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

std::string readable(size_t bytes) {
  return bytes < (size_t{1} << 20) ? message(bytes, " bytes") : message(bytes >> 20, " MiB");
}

}  // namespace

const char* memory_kind_name(MemoryKind kind) {
  constexpr const char* kNames[kMemoryKinds] = {"managed", "pinned", "device", "host"};
  return kNames[static_cast<int>(kind)];
}

Block::Block(MemoryKind kind, void* data, size_t bytes, int device, std::function<void()> release,
             void* on_device)
    : kind(kind),
      data(static_cast<std::byte*>(data)),
      bytes(bytes),
      device(device),
      on_device(static_cast<std::byte*>(on_device ? on_device : data)),
      release_(std::move(release)) {}

std::shared_ptr<Block> Block::adopt(MemoryKind kind, void* data, size_t bytes, int device,
                                    std::function<void()> release, void* on_device) {
  const std::shared_ptr<Block> block(new Block(kind, data, bytes, device, std::move(release), on_device));
  Registry& registry = Registry::get();
  std::lock_guard lock(registry.mutex);
  registry.blocks[address_of(data)] = {block, bytes};
  registry.stats.blocks += 1;
  registry.stats.bytes[static_cast<int>(kind)] += bytes;
  registry.stats.peak_bytes = std::max(registry.stats.peak_bytes, total(registry.stats));
  return block;
}

Block::~Block() {
  Registry& registry = Registry::get();
  {
    std::lock_guard lock(registry.mutex);
    if (registry.blocks.erase(address_of(data)) > 0) {  // or there was no memory to note it
      registry.stats.blocks -= 1;
      registry.stats.bytes[static_cast<int>(kind)] -= bytes;
    }
  }
  release_();  // after the address has left the registry: the next block may get the same one
}

std::shared_ptr<Block> Block::allocate_host(size_t bytes) {
  require_fits(MemoryKind::kHost, bytes, host_memory());
  const bool huge = bytes >= kHugePage;
  const size_t mapped = bytes + (huge ? kHugePage : 0);
  void* base =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    throw Error("ERR_OUT_OF_MEMORY", message("the machine refused ", readable(bytes), " of host memory"));
  }
  uintptr_t start = address_of(base);
  if (huge) {
    start = (start + kHugePage - 1) & ~(kHugePage - 1);
    advise_huge_pages(reinterpret_cast<void*>(start), bytes);
  }
  return adopt(MemoryKind::kHost, reinterpret_cast<void*>(start), bytes, -1,
               [base, mapped] { munmap(base, mapped); });
}

void advise_huge_pages(void* start, size_t bytes) {
  const uintptr_t from = (address_of(start) + kHugePage - 1) & ~(kHugePage - 1);
  const uintptr_t to = (address_of(start) + bytes) & ~(kHugePage - 1);
  if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
}

std::shared_ptr<Block> Block::find(const void* address, size_t bytes) {
  Registry& registry = Registry::get();
  std::lock_guard lock(registry.mutex);
  const auto after = registry.blocks.upper_bound(address_of(address));
  if (after == registry.blocks.begin()) return nullptr;
  const auto& [start, entry] = *std::prev(after);
  const size_t offset = address_of(address) - start;
  // Only a reference that is returned is taken: any other could be the last one by the time it is dropped.
  return offset <= entry.bytes && bytes <= entry.bytes - offset ? entry.block.lock() : nullptr;
}

MemoryStats memory_stats() {
  Registry& registry = Registry::get();
  std::lock_guard lock(registry.mutex);
  return registry.stats;
}

HostMemory host_memory() {
  FILE* file = std::fopen("/proc/meminfo", "r");
  if (!file) return {SIZE_MAX, 0};
  size_t total_kib = 0, available_kib = 0;
  bool known = false;
  char line[128];
  while (std::fgets(line, sizeof line, file)) {
    std::sscanf(line, "MemTotal: %zu", &total_kib);
    known |= std::sscanf(line, "MemAvailable: %zu", &available_kib) == 1;
  }
  std::fclose(file);
  if (!known) return {SIZE_MAX, 0};
  const size_t available = available_kib << 10, reserve = (total_kib << 10) / 32;
  return {available > reserve ? available - reserve : 0, reserve};
}

void require_fits(MemoryKind kind, size_t bytes, HostMemory memory) {
  if (bytes <= memory.available) return;
  throw Error("ERR_OUT_OF_MEMORY",
              message("cannot allocate ", readable(bytes), " of ", memory_kind_name(kind),
                      " memory: ", readable(memory.available), " are free (", readable(memory.reserve),
                      " are kept for the system); dispose buffers or ask for less"));
}

}  // namespace spark
