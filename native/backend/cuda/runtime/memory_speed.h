// memory_speed.h: the measured bandwidth of each kind of memory on a GPU that shares the host's memory, and
// the choice of kinds for a plan.
#pragma once

#include <vector>

#include "core/block.h"

namespace spark::cuda {

class Device;

// In 10^9 bytes per second.
struct MemorySpeed {
  MemoryKind kind;
  double resident;  // a kernel reads and writes
  double
      passing;  // the CPU writes, a kernel reads and writes, the CPU reads; device memory: by way of pinned
};

struct MemoryChoice {
  MemoryKind resident = MemoryKind::kDevice;  // weights, arena and state
  MemoryKind passing = MemoryKind::kDevice;   // inputs and outputs; kDevice: copied through pinned memory
  MemoryKind held = MemoryKind::kManaged;     // what the CPU sees, too, and the GPU mostly reads
  std::vector<MemorySpeed> measured;
};

// Measures the kinds that an integrated device has, once in a process, and chooses the fastest; waits for the
// device. A kind that cannot be had is left out. Other devices have no choice and nothing is measured.
MemoryChoice measure_memory(Device& device);

// What was chosen for a device; without a measurement device memory, and pinned memory for what is passed to
// an integrated one. Never waits.
MemoryChoice memory_choice(const Device& device);

}  // namespace spark::cuda
