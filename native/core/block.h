// block.h: a piece of memory with shared ownership, found again by its address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace spark {

enum class MemoryKind : uint8_t {
  kManaged,  // one address for the CPU and the GPU, pages move or are shared
  kPinned,   // page-locked host memory that the GPU reads in place
  kDevice,   // the GPU only
  kHost,     // ordinary memory
};
constexpr int kMemoryKinds = 4;

const char* memory_kind_name(MemoryKind kind);

class Block {
 public:
  // Allocates zero-filled ordinary memory; large blocks ask for huge pages. Throws ERR_OUT_OF_MEMORY.
  static std::shared_ptr<Block> allocate_host(size_t bytes);

  // Takes over memory that `release` frees, on whichever thread drops the last reference. `on_device`: see
  // below; null where it is `data`.
  static std::shared_ptr<Block> adopt(MemoryKind kind, void* data, size_t bytes, int device,
                                      std::function<void()> release, void* on_device = nullptr);

  // The live block that holds [address, address + bytes), or null. This is how a typed array over our memory
  // is recognised.
  static std::shared_ptr<Block> find(const void* address, size_t bytes);

  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const MemoryKind kind;
  std::byte* const data;
  const size_t bytes;
  const int device;  // CUDA ordinal, -1 for host memory
  // Where the device finds what the process knows at `data`: elsewhere for memory of a device that the CPU
  // cannot read, whose stand-in at `data` is never written.
  std::byte* const on_device;

 private:
  Block(MemoryKind kind, void* data, size_t bytes, int device, std::function<void()> release,
        void* on_device);
  std::function<void()> release_;
};

// Asks for huge pages where whole ones lie in [start, start + bytes): memory that is written for the first
// time has a page fault for each page.
void advise_huge_pages(void* start, size_t bytes);

struct MemoryStats {
  size_t blocks;
  size_t bytes[kMemoryKinds];
  size_t peak_bytes;  // of all kinds together, since the process began
};
MemoryStats memory_stats();

// What may be allocated before the machine is in trouble: MemAvailable of /proc/meminfo less a reserve of
// 1/32 of MemTotal. A machine with unified memory that runs out freezes as a whole, hence the reserve.
struct HostMemory {
  size_t available;  // less the reserve; SIZE_MAX when /proc/meminfo cannot be read
  size_t reserve;
};
HostMemory host_memory();

// Throws ERR_OUT_OF_MEMORY, saying how much is free, when `bytes` exceeds `memory.available`.
void require_fits(MemoryKind kind, size_t bytes, HostMemory memory);

}  // namespace spark
