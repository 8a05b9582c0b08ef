// query.cc: properties of CUDA devices without a context.
#include "backend/cuda/runtime/query.h"

#include <cstdio>

#include "backend/cuda/runtime/driver.h"
#include "backend/cuda/runtime/kernel_images.h"

namespace spark::cuda {
namespace {

// In NVML's form, GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx.
std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    char byte[4];
    std::snprintf(byte, sizeof byte, "%02x", uuid.bytes[i]);
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += byte;
  }
  return text;
}

DeviceInfo read_device(const Driver& driver, int ordinal) {
  DeviceInfo info{};
  info.ordinal = ordinal;
  CUdevice device;
  if (driver.cuDeviceGet(&device, ordinal) != kSuccess) return info;

  char text[257] = {};
  if (driver.cuDeviceGetName(text, 256, device) == kSuccess) info.name = text;
  CUuuid uuid;
  if (driver.cuDeviceGetUuid(&uuid, device) == kSuccess) info.uuid = uuid_text(uuid);
  char pci[33] = {};
  if (driver.cuDeviceGetPCIBusId(pci, 32, device) == kSuccess) info.pci = pci;
  size_t bytes = 0;
  if (driver.cuDeviceTotalMem(&bytes, device) == kSuccess) info.memory = bytes;

  const auto attribute = [&](Attribute which) -> std::optional<int> {
    int value = 0;
    if (driver.cuDeviceGetAttribute(&value, which, device) != kSuccess) return std::nullopt;
    return value;
  };
  info.major = attribute(kComputeCapabilityMajor);
  info.minor = attribute(kComputeCapabilityMinor);
  info.sm_count = attribute(kMultiprocessorCount);
  const auto flag = [&](Attribute which) -> std::optional<bool> {
    const std::optional<int> value = attribute(which);
    return value ? std::optional(*value != 0) : std::nullopt;
  };
  info.integrated = flag(kIntegrated);
  info.pageable_memory_access = flag(kPageableMemoryAccess);
  info.managed_memory = flag(kManagedMemory);
  info.concurrent_managed_access = flag(kConcurrentManagedAccess);
  return info;
}

}  // namespace

Report query() {
  const Driver& driver = Driver::get();
  Report report;
  report.reason = driver.reason;
  if (driver.version > 0) {
    report.version = driver.version;
    report.kernels_problem = kernels_problem(driver.version);
  }
  if (!report.reason.empty()) return report;
  for (int ordinal = 0; ordinal < driver.devices; ++ordinal) {
    report.devices.push_back(read_device(driver, ordinal));
  }
  return report;
}

}  // namespace spark::cuda
