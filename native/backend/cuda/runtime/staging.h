// staging.h: copies of operands in ordinary memory to a device and back. Each is copied through pinned
// memory, which an integrated GPU reads in place and a discrete one copies on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cuda/runtime/memory.h"

namespace spark::cuda {

// What an operation does with an operand.
enum class Access { kRead, kWrite, kReadWrite };

// Copies ordinary memory to where a device finds `target`, in pieces through pinned memory, and waits for it:
// not for the JavaScript thread.
void upload(Device& device, std::byte* target, const std::byte* data, int64_t bytes);

// What one operation works on: staged operands, and blocks that it uses where they are. One that ends before
// wait() or passed() waits for the device, which may still be using it after a failure half-way.
class Staging {
 public:
  explicit Staging(Device& device) : device_(device) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // The device's address for `bytes` at `data`. What is read is copied now and enqueued. The device must be
  // current.
  void* add(const void* data, size_t bytes, Access access);

  // Keeps a block alive.
  void keep(std::shared_ptr<Block> block) { blocks_.push_back(std::move(block)); }

  // Enqueues the way back of what was written; call it after the kernels.
  void fetch();

  // Blocks until the device has passed everything that is enqueued.
  void wait();

  // Says that the device has passed everything that was enqueued with these operands.
  void passed() { passed_ = true; }

  // An operand as it came back, once the device has passed fetch().
  const void* written(size_t index) const { return operands_[index].pinned.data; }
  size_t size() const { return operands_.size(); }

 private:
  struct Operand {
    Pool::Piece pinned;
    Pool::Piece on_device;  // empty on an integrated GPU
    size_t bytes;
    Access access;
  };

  void copy(const void* target, const void* source, size_t bytes);

  Device& device_;
  std::vector<Operand> operands_;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::atomic<bool> passed_{false};  // by a thread of the stream
};

}  // namespace spark::cuda
