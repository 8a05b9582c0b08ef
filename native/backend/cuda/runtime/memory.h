// memory.h: memory that a CUDA device can reach: blocks, and pools of temporary memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "core/block.h"

namespace spark::cuda {

class Device;
class Stream;

// What is free of the memory that blocks of a kind lie in. The device must be current.
HostMemory free_memory(Device& device, MemoryKind kind);

// A block of managed, pinned or device memory. Throws ERR_OUT_OF_MEMORY when it cannot fit, ERR_UNSUPPORTED
// when the device lacks managed memory, ERR_CUDA.
std::shared_ptr<Block> allocate(Device& device, MemoryKind kind, size_t bytes);

// A block of the kind that a device reads fastest, for what upload() writes and kernels read. Where the CPU
// cannot read that kind, the process knows it by addresses at which there are zeros.
std::shared_ptr<Block> allocate_apart(Device& device, MemoryKind kind, size_t bytes);

// Bytes of the whole words that kernels read of so many bytes: word_at() of block_formats.h.
constexpr size_t in_words(size_t bytes) { return (bytes + 3) / 4 * 4; }

// Fills with zeros and waits for it.
void zero(Device& device, const Block& block);

// Whether the driver has prefetch() and advise(), which came with CUDA 12.2.
bool takes_hints(const Device& device);

// Moves the pages of managed memory to the GPU or the CPU, in the order of the stream; does not wait.
void prefetch(Device& device, const Block& block, bool to_gpu);

// Tells the driver how managed memory will be used; `advice` is a CUmem_advise, about the GPU or the CPU.
void advise(Device& device, const Block& block, int advice, bool gpu);

// Whether kernels on `device` can use the memory of `block` where it is.
bool reaches(const Device& device, const Block& block);

// Where a device that reaches a block finds what the process knows at `data`.
inline std::byte* on_device(const Block& block, const void* data) {
  return block.on_device + (static_cast<const std::byte*>(data) - block.data);
}

// Memory kept for the next one who asks, by size, for what is enqueued on a stream.
class Pool {
 public:
  static constexpr size_t kKeepAll = SIZE_MAX;

  // Frees what exceeds `max_kept` bytes. One that keeps all frees nothing before trim().
  Pool(Stream& stream, MemoryKind kind, size_t max_kept = size_t{256} << 20);

  struct Piece {
    void* data = nullptr;
    size_t bytes = 0;  // at least what was asked for
  };
  Piece take(size_t bytes);

  // Device memory may still be used by what is enqueued, since the next one's work comes after it. Host
  // memory must be given back only when the device is done with it.
  void give(Piece piece);

  // Frees what is kept; waits for the stream.
  void trim();

  // Frees what is kept when the stream has passed what is enqueued; does not wait, and the pool may be gone
  // then.
  void trim_when_passed();

 private:
  std::multimap<size_t, void*> take_kept();
  void free_when_passed(Piece piece);

  Stream& stream_;
  Device& device_;
  const MemoryKind kind_;
  const size_t max_kept_;
  std::mutex mutex_;
  std::multimap<size_t, void*> kept_;
  size_t kept_bytes_ = 0;
};

// Temporary device memory for the kernels of one operation, on the current device. It may go out of scope as
// soon as the last kernel that uses it is enqueued. The content is undefined; alignment is 256 bytes.
class Scratch {
 public:
  explicit Scratch(size_t bytes);
  ~Scratch() { pool_.give(piece_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <typename T>
  T* as() const {
    return static_cast<T*>(piece_.data);
  }

 private:
  Pool& pool_;
  Pool::Piece piece_;
};

}  // namespace spark::cuda
