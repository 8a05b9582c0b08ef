// nvml.h: properties and sensors of NVIDIA GPUs from NVML. libnvidia-ml.so.1 is opened at first use and every
// call is optional: a getter that is missing, not supported (as half of them on GB10) or fails gives no
// value, and `unavailable` keeps why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spark::nvml {

// A value that NVML did not give.
struct Unavailable {
  const char* field;   // the name the value has in lib/native.ts
  std::string reason;  // NVML's words
};

struct Memory {
  uint64_t total, free, used;  // bytes
};

struct ComputeCapability {
  int major, minor;
};

// Facts that do not change while the driver runs, except memory.
struct DeviceInfo {
  unsigned index;  // NVML's order, that of nvidia-smi: by PCI address
  std::optional<std::string> name, uuid, pci;
  std::optional<uint32_t> pci_id;  // device << 16 | vendor
  std::optional<ComputeCapability> compute_capability;
  std::optional<Memory> memory;
  std::string problem;  // why the GPU cannot be used; empty when it can
  std::vector<Unavailable> unavailable;
};

struct Report {
  std::string reason;  // why NVML cannot be used; empty when it can
  std::optional<std::string> driver;
  std::optional<int> cuda_version;  // newest CUDA the driver runs, 13000 for 13.0
  std::vector<DeviceInfo> devices;
};

struct Process {
  unsigned pid;
  std::optional<uint64_t> bytes;
  bool graphics;
};

// How long a GPU has been held back by each cause since the driver started. Only growth has a meaning:
// drivers differ in the unit.
struct ThrottleCounters {
  std::optional<uint64_t> power_cap, thermal, hardware_thermal, power_brake;
};

struct Sample {
  std::optional<unsigned> utilization;  // percent of the driver's last sampling period
  std::optional<Memory> memory;
  std::optional<int> temperature;                                     // °C
  std::optional<unsigned> power, power_limit;                         // mW
  std::optional<unsigned> graphics, sm, memory_clock, video, max_sm;  // MHz
  std::optional<uint64_t> event_reasons;                              // nvmlClocksEventReasons bits
  ThrottleCounters throttled;
  std::optional<std::vector<Process>> processes;
  std::vector<Unavailable> unavailable;
};

// Looks at every GPU. Starts NVML when it is not running yet, which can take hundreds of ms; never throws for
// a machine's state.
Report query();

// Measures one GPU now. Throws ERR_NO_CUDA without NVML, ERR_CUDA when the GPU is unknown or lost.
Sample sample(const std::string& uuid);

}  // namespace spark::nvml
