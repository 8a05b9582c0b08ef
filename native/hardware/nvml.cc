// nvml.cc: loading of NVML and its queries.
#include "hardware/nvml.h"

#include <cstring>
#include <mutex>

#include "core/error.h"
#include "core/library.h"

namespace spark::nvml {
namespace {

// --- The ABI of libnvidia-ml.so.1 ---

using Result = int;
using Device = void*;

constexpr Result kSuccess = 0;
constexpr Result kInsufficientSize = 7;
constexpr Result kGpuIsLost = 15;
constexpr uint64_t kNotAvailable = ~0ull;  // a process whose memory the driver does not tell

const std::string kLostWords =
    "the GPU is lost: the driver no longer reaches it; look for Xid messages in dmesg and reboot";

struct MemoryV1 {
  uint64_t total, free, used;
};
struct MemoryV2 {
  uint32_t version;
  uint64_t total, reserved, free, used;
};
struct Utilization {
  uint32_t gpu, memory;
};
struct PciInfo {
  char legacy_bus_id[16];
  uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct ProcessInfo {
  uint32_t pid;
  uint64_t bytes;
  uint32_t gpu_instance, compute_instance;
};
struct TemperatureV1 {
  uint32_t version;
  int32_t sensor, temperature;
};
struct FieldValue {
  uint32_t field, scope;
  int64_t timestamp, latency;
  uint32_t type;
  Result result;
  union {
    uint64_t u64;
    uint32_t u32;
    double f64;
  } value;
};
static_assert(sizeof(MemoryV2) == 40 && sizeof(PciInfo) == 68 && sizeof(ProcessInfo) == 24 &&
              sizeof(TemperatureV1) == 12 && sizeof(FieldValue) == 40);

// A versioned struct says its size and its version in its first word.
template <typename Struct>
constexpr uint32_t version_word(uint32_t version) {
  return sizeof(Struct) | version << 24;
}

enum Clock : int { kGraphics = 0, kSm = 1, kMemory = 2, kVideo = 3 };

class Nvml {
 public:
  static Nvml& get() {
    static Nvml* nvml = new Nvml;  // leaked: never shut down, other users in the process may need it
    return *nvml;
  }

  // Starts NVML unless it runs. Returns why it cannot run; a later call tries again, because the kernel
  // module may have been loaded meanwhile.
  std::string start() {
    std::lock_guard lock(mutex_);
    if (started_) return "";
    if (!library_.ok()) return library_.reason();
    if (!nvmlInit || !nvmlDeviceGetCount || !nvmlDeviceGetHandleByIndex) {
      return library_.name() + " lacks nvmlInit_v2 or the device list; update the NVIDIA driver";
    }
    const Result result = nvmlInit();
    if (result != kSuccess) return "nvmlInit failed: " + text(result);
    started_ = true;
    return "";
  }

  std::string text(Result result) const {
    const char* words = nvmlErrorString ? nvmlErrorString(result) : nullptr;
    return words ? words : message("NVML error ", result);
  }

  Result (*nvmlInit)();
  const char* (*nvmlErrorString)(Result);
  Result (*nvmlSystemGetDriverVersion)(char*, unsigned length);
  Result (*nvmlSystemGetCudaDriverVersion)(int*);
  Result (*nvmlDeviceGetCount)(unsigned*);
  Result (*nvmlDeviceGetHandleByIndex)(unsigned, Device*);
  Result (*nvmlDeviceGetHandleByUUID)(const char*, Device*);
  Result (*nvmlDeviceGetName)(Device, char*, unsigned length);
  Result (*nvmlDeviceGetUUID)(Device, char*, unsigned length);
  Result (*nvmlDeviceGetPciInfo)(Device, PciInfo*);
  Result (*nvmlDeviceGetCudaComputeCapability)(Device, int* major, int* minor);
  Result (*nvmlDeviceGetMemoryInfo)(Device, MemoryV1*);
  Result (*nvmlDeviceGetMemoryInfoV2)(Device, MemoryV2*);
  Result (*nvmlDeviceGetUtilizationRates)(Device, Utilization*);
  Result (*nvmlDeviceGetTemperature)(Device, int sensor, unsigned*);
  Result (*nvmlDeviceGetTemperatureV)(Device, TemperatureV1*);
  Result (*nvmlDeviceGetPowerUsage)(Device, unsigned*);
  Result (*nvmlDeviceGetEnforcedPowerLimit)(Device, unsigned*);
  Result (*nvmlDeviceGetClockInfo)(Device, int clock, unsigned*);
  Result (*nvmlDeviceGetMaxClockInfo)(Device, int clock, unsigned*);
  Result (*nvmlDeviceGetCurrentClocksEventReasons)(Device, unsigned long long*);
  Result (*nvmlDeviceGetFieldValues)(Device, int count, FieldValue*);
  Result (*nvmlDeviceGetComputeRunningProcesses)(Device, unsigned* count, ProcessInfo*);
  Result (*nvmlDeviceGetGraphicsRunningProcesses)(Device, unsigned* count, ProcessInfo*);

 private:
  Nvml() {
    library_.bind(nvmlInit, "nvmlInit_v2");
    library_.bind(nvmlErrorString, "nvmlErrorString");
    library_.bind(nvmlSystemGetDriverVersion, "nvmlSystemGetDriverVersion");
    library_.bind(nvmlSystemGetCudaDriverVersion, "nvmlSystemGetCudaDriverVersion_v2");
    library_.bind(nvmlDeviceGetCount, "nvmlDeviceGetCount_v2");
    library_.bind(nvmlDeviceGetHandleByIndex, "nvmlDeviceGetHandleByIndex_v2");
    library_.bind(nvmlDeviceGetHandleByUUID, "nvmlDeviceGetHandleByUUID");
    library_.bind(nvmlDeviceGetName, "nvmlDeviceGetName");
    library_.bind(nvmlDeviceGetUUID, "nvmlDeviceGetUUID");
    library_.bind(nvmlDeviceGetPciInfo, "nvmlDeviceGetPciInfo_v3");
    library_.bind(nvmlDeviceGetCudaComputeCapability, "nvmlDeviceGetCudaComputeCapability");
    library_.bind(nvmlDeviceGetMemoryInfo, "nvmlDeviceGetMemoryInfo");
    library_.bind(nvmlDeviceGetMemoryInfoV2, "nvmlDeviceGetMemoryInfo_v2");
    library_.bind(nvmlDeviceGetUtilizationRates, "nvmlDeviceGetUtilizationRates");
    library_.bind(nvmlDeviceGetTemperature, "nvmlDeviceGetTemperature");
    library_.bind(nvmlDeviceGetTemperatureV, "nvmlDeviceGetTemperatureV");
    library_.bind(nvmlDeviceGetPowerUsage, "nvmlDeviceGetPowerUsage");
    library_.bind(nvmlDeviceGetEnforcedPowerLimit, "nvmlDeviceGetEnforcedPowerLimit");
    library_.bind(nvmlDeviceGetClockInfo, "nvmlDeviceGetClockInfo");
    library_.bind(nvmlDeviceGetMaxClockInfo, "nvmlDeviceGetMaxClockInfo");
    if (!library_.bind(nvmlDeviceGetCurrentClocksEventReasons, "nvmlDeviceGetCurrentClocksEventReasons")) {
      library_.bind(nvmlDeviceGetCurrentClocksEventReasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    }
    library_.bind(nvmlDeviceGetFieldValues, "nvmlDeviceGetFieldValues");
    library_.bind(nvmlDeviceGetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses_v3");
    library_.bind(nvmlDeviceGetGraphicsRunningProcesses, "nvmlDeviceGetGraphicsRunningProcesses_v3");
  }

  Library library_{"libnvidia-ml.so.1"};
  std::mutex mutex_;
  bool started_ = false;
};

// --- Asking one device ---

// Calls getters of one device and keeps, for each value there is none of, why.
class Questions {
 public:
  Questions(const Nvml& nvml, Device device) : nvml_(nvml), device_(device) {}

  // True when the getter answered. `field` null: another getter follows for the same value.
  template <typename... Parameters, typename... Arguments>
  bool ask(const char* field, Result (*getter)(Device, Parameters...), Arguments... arguments) {
    const Result result = getter ? getter(device_, arguments...) : kSuccess;
    if (getter && result == kSuccess) return true;
    if (result == kGpuIsLost) lost = true;
    if (field) {
      unavailable.push_back({field, getter ? nvml_.text(result) : "the driver's NVML lacks the call"});
    }
    return false;
  }

  template <typename Value, typename... Parameters, typename... Arguments>
  std::optional<Value> value(const char* field, Result (*getter)(Device, Parameters...),
                             Arguments... arguments) {
    Value value{};
    if (!ask(field, getter, arguments..., &value)) return std::nullopt;
    return value;
  }

  std::optional<std::string> text(const char* field, Result (*getter)(Device, char*, unsigned)) {
    char buffer[97] = {};
    if (!ask(field, getter, buffer, 96u)) return std::nullopt;
    return std::string(buffer);
  }

  bool lost = false;
  std::vector<Unavailable> unavailable;

 private:
  const Nvml& nvml_;
  Device device_;
};

std::optional<Memory> read_memory(const Nvml& nvml, Questions& questions) {
  MemoryV2 v2{};
  v2.version = version_word<MemoryV2>(2);
  if (questions.ask(nullptr, nvml.nvmlDeviceGetMemoryInfoV2, &v2)) return Memory{v2.total, v2.free, v2.used};
  const auto v1 = questions.value<MemoryV1>("memory", nvml.nvmlDeviceGetMemoryInfo);
  return v1 ? std::optional(Memory{v1->total, v1->free, v1->used}) : std::nullopt;
}

std::optional<int> read_temperature(const Nvml& nvml, Questions& questions) {
  constexpr int kGpuSensor = 0;
  TemperatureV1 v1{version_word<TemperatureV1>(1), kGpuSensor, 0};
  if (questions.ask(nullptr, nvml.nvmlDeviceGetTemperatureV, &v1)) return v1.temperature;
  const auto celsius = questions.value<unsigned>("temperature", nvml.nvmlDeviceGetTemperature, kGpuSensor);
  return celsius ? std::optional<int>(*celsius) : std::nullopt;
}

std::optional<uint64_t> counter_value(const FieldValue& field) {
  constexpr uint32_t kUnsignedInt = 1, kUnsignedLong = 2, kUnsignedLongLong = 3;
  if (field.result != kSuccess) return std::nullopt;
  if (field.type == kUnsignedInt) return field.value.u32;
  if (field.type == kUnsignedLong || field.type == kUnsignedLongLong) return field.value.u64;
  return std::nullopt;
}

// The instantaneous event reasons are often 0 on a GB10 that is held back; the counters are not.
ThrottleCounters read_throttle_counters(const Nvml& nvml, Questions& questions) {
  // Numbers 269 and above mean something else in drivers before CUDA 13: reading them there gives a plausible
  // number of another thing.
  constexpr int kCuda13 = 13000;
  int cuda_version = 0;
  if (nvml.nvmlSystemGetCudaDriverVersion) nvml.nvmlSystemGetCudaDriverVersion(&cuda_version);
  FieldValue fields[4] = {};
  const uint32_t numbers[4] = {74, 75, 270, 271};
  for (int i = 0; i < 4; ++i) fields[i].field = numbers[i];
  const int count = cuda_version >= kCuda13 ? 4 : 2;
  if (!questions.ask("throttleCounters", nvml.nvmlDeviceGetFieldValues, count, fields)) return {};
  for (int i = count; i < 4; ++i) fields[i].result = -1;
  return {counter_value(fields[0]), counter_value(fields[1]), counter_value(fields[2]),
          counter_value(fields[3])};
}

using ProcessGetter = Result (*)(Device, unsigned*, ProcessInfo*);

bool append_processes(Questions& questions, ProcessGetter getter, bool graphics, std::vector<Process>& out) {
  std::vector<ProcessInfo> found(1024);
  unsigned count = found.size();
  if (!questions.ask(graphics ? nullptr : "processes", getter, &count, found.data())) return false;
  for (unsigned i = 0; i < count && i < found.size(); ++i) {
    const bool known = found[i].bytes != kNotAvailable;
    out.push_back({found[i].pid, known ? std::optional(found[i].bytes) : std::nullopt, graphics});
  }
  return true;
}

std::optional<std::vector<Process>> read_processes(const Nvml& nvml, Questions& questions) {
  std::vector<Process> processes;
  const bool compute =
      append_processes(questions, nvml.nvmlDeviceGetComputeRunningProcesses, false, processes);
  const bool graphics =
      append_processes(questions, nvml.nvmlDeviceGetGraphicsRunningProcesses, true, processes);
  return compute || graphics ? std::optional(std::move(processes)) : std::nullopt;
}

DeviceInfo read_device(const Nvml& nvml, unsigned index) {
  DeviceInfo info{};
  info.index = index;
  Device device = nullptr;
  if (const Result result = nvml.nvmlDeviceGetHandleByIndex(index, &device); result != kSuccess) {
    info.problem = result == kGpuIsLost ? kLostWords : "NVML cannot open the GPU: " + nvml.text(result);
    return info;
  }
  Questions questions(nvml, device);
  info.name = questions.text("name", nvml.nvmlDeviceGetName);
  info.uuid = questions.text("uuid", nvml.nvmlDeviceGetUUID);
  if (const auto pci = questions.value<PciInfo>("pci", nvml.nvmlDeviceGetPciInfo)) {
    info.pci = std::string(pci->bus_id, strnlen(pci->bus_id, sizeof pci->bus_id));
    info.pci_id = pci->pci_device_id;
  }
  ComputeCapability capability{};
  if (questions.ask("computeCapability", nvml.nvmlDeviceGetCudaComputeCapability, &capability.major,
                    &capability.minor)) {
    info.compute_capability = capability;
  }
  info.memory = read_memory(nvml, questions);
  if (questions.lost) info.problem = kLostWords;
  info.unavailable = std::move(questions.unavailable);
  return info;
}

}  // namespace

Report query() {
  Nvml& nvml = Nvml::get();
  Report report;
  report.reason = nvml.start();
  if (!report.reason.empty()) return report;

  char driver[81] = {};
  if (nvml.nvmlSystemGetDriverVersion && nvml.nvmlSystemGetDriverVersion(driver, 80) == kSuccess) {
    report.driver = driver;
  }
  int cuda_version = 0;
  if (nvml.nvmlSystemGetCudaDriverVersion && nvml.nvmlSystemGetCudaDriverVersion(&cuda_version) == kSuccess) {
    report.cuda_version = cuda_version;
  }
  unsigned count = 0;
  if (const Result result = nvml.nvmlDeviceGetCount(&count); result != kSuccess) {
    report.reason = "nvmlDeviceGetCount failed: " + nvml.text(result);
    return report;
  }
  for (unsigned index = 0; index < count; ++index) report.devices.push_back(read_device(nvml, index));
  return report;
}

Sample sample(const std::string& uuid) {
  Nvml& nvml = Nvml::get();
  if (const std::string reason = nvml.start(); !reason.empty()) {
    throw Error("ERR_NO_CUDA", "the GPU cannot be measured: " + reason);
  }
  Device device = nullptr;
  if (!nvml.nvmlDeviceGetHandleByUUID) {
    throw Error("ERR_NO_CUDA", "the driver's NVML lacks nvmlDeviceGetHandleByUUID; update the NVIDIA driver");
  }
  if (const Result result = nvml.nvmlDeviceGetHandleByUUID(uuid.c_str(), &device); result != kSuccess) {
    throw Error("ERR_CUDA", message("NVML cannot open GPU ", uuid, ": ",
                                    result == kGpuIsLost ? kLostWords : nvml.text(result)));
  }
  Questions questions(nvml, device);
  Sample sample;
  if (const auto rates = questions.value<Utilization>("utilization", nvml.nvmlDeviceGetUtilizationRates)) {
    sample.utilization = rates->gpu;
  }
  sample.memory = read_memory(nvml, questions);
  sample.temperature = read_temperature(nvml, questions);
  sample.power = questions.value<unsigned>("power", nvml.nvmlDeviceGetPowerUsage);
  sample.power_limit = questions.value<unsigned>("powerLimit", nvml.nvmlDeviceGetEnforcedPowerLimit);
  sample.graphics = questions.value<unsigned>("graphicsClock", nvml.nvmlDeviceGetClockInfo, kGraphics);
  sample.sm = questions.value<unsigned>("smClock", nvml.nvmlDeviceGetClockInfo, kSm);
  sample.memory_clock = questions.value<unsigned>("memoryClock", nvml.nvmlDeviceGetClockInfo, kMemory);
  sample.video = questions.value<unsigned>("videoClock", nvml.nvmlDeviceGetClockInfo, kVideo);
  sample.max_sm = questions.value<unsigned>("maxSmClock", nvml.nvmlDeviceGetMaxClockInfo, kSm);
  sample.event_reasons =
      questions.value<unsigned long long>("eventReasons", nvml.nvmlDeviceGetCurrentClocksEventReasons);
  sample.throttled = read_throttle_counters(nvml, questions);
  sample.processes = read_processes(nvml, questions);
  if (questions.lost) throw Error("ERR_CUDA", message("GPU ", uuid, ": ", kLostWords));
  sample.unavailable = std::move(questions.unavailable);
  return sample;
}

}  // namespace spark::nvml
