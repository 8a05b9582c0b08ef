// resident.h: host memory that nobody changes, on a device: one copy for all plans of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "core/block.h"

namespace spark::cuda {

class Device;

// Lives as long as somebody has it. Until then `data` must stay where it is, as it is.
class Resident {
 public:
  // The copy of `bytes` at `data`, empty at first. Throws as allocate(); the device must be current.
  static std::shared_ptr<Resident> of(Device& device, const std::byte* data, int64_t bytes, MemoryKind kind);

  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  const std::shared_ptr<Block>& block() const { return block_; }

  // Fills the copy unless that is done, by upload(): not for the JavaScript thread. Whoever comes meanwhile
  // waits as well; after an error the next call tries again.
  void upload();

 private:
  Resident(Device& device, const std::byte* data, int64_t bytes, MemoryKind kind);

  Device& device_;
  const std::byte* const data_;
  const int64_t bytes_;
  const std::shared_ptr<Block> block_;
  std::mutex mutex_;
  bool is_uploaded_ = false;  // guarded by mutex_
};

}  // namespace spark::cuda
