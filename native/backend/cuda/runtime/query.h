// query.h: properties of CUDA devices, read from the driver without making a context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spark::cuda {

// A value the driver does not give is missing; nothing here throws.
struct DeviceInfo {
  int ordinal;  // CUDA's order: by CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES, not that of NVML
  std::optional<std::string> name, uuid, pci;
  std::optional<uint64_t> memory;  // bytes in all
  std::optional<int> major, minor, sm_count;
  std::optional<bool> integrated, pageable_memory_access, managed_memory, concurrent_managed_access;
};

struct Report {
  std::string reason;           // why CUDA cannot be used; empty when it can
  std::string kernels_problem;  // why the driver cannot load the kernels of this addon; empty when it can
  std::optional<int> version;   // newest CUDA the driver runs, 13000 for 13.0
  std::vector<DeviceInfo> devices;
};

// Starts the driver at the first call, which can take hundreds of ms.
Report query();

}  // namespace spark::cuda
