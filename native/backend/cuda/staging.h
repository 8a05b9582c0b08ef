// staging.h: how operands in ordinary memory reach a device and come back. Each is copied through pinned
// memory, which an integrated GPU reads in place and a discrete one copies on.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/cuda/memory.h"

namespace spark::cuda {

// What an operation does with an operand.
enum class Access { kRead, kWrite, kReadWrite };

// The staged operands of one operation. Must outlive the operation on the device.
class Staging {
 public:
  explicit Staging(Device& device) : device_(device) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // The device's address for `bytes` at `data`. What is read is copied now and enqueued. The device must be
  // current.
  void* add(const void* data, size_t bytes, Access access);

  // Enqueues the way back of what was written; call it after the kernels.
  void fetch();

  // Blocks until the device has passed everything that is enqueued.
  void wait();

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
};

}  // namespace spark::cuda
