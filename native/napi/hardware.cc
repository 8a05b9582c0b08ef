// hardware.cc: bindings of NVML and the CUDA device list.
#include "napi/hardware.h"

#include <memory>
#include <optional>
#include <string>

#include "backend/cuda/gemm/cublaslt.h"
#include "backend/cuda/runtime/kernel_images.h"
#include "backend/cuda/runtime/query.h"
#include "hardware/nvml.h"
#include "napi/job.h"

namespace spark::napi {
namespace {

// A JavaScript object in the making; a missing value becomes null.
class Record {
 public:
  explicit Record(Napi::Env env) : env_(env), object_(Napi::Object::New(env)) {}

  void set(const char* name, Napi::Value value) { object_.Set(name, value); }
  void set(const char* name, const std::string& text) { object_.Set(name, text); }
  void set(const char* name, bool flag) { object_.Set(name, flag); }
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void set(const char* name, Number number) {
    object_.Set(name, static_cast<double>(number));  // exact: no count here reaches 2^53
  }
  template <typename T>
  void set(const char* name, const std::optional<T>& value) {
    if (value) {
      set(name, *value);
    } else {
      object_.Set(name, env_.Null());
    }
  }
  void set(const char* name, const nvml::Memory& memory) {
    Record record(env_);
    record.set("total", memory.total);
    record.set("free", memory.free);
    record.set("used", memory.used);
    set(name, record.object());
  }
  void set(const char* name, const std::vector<nvml::Unavailable>& unavailable) {
    Record record(env_);
    for (const auto& [field, reason] : unavailable) record.set(field, reason);
    set(name, record.object());
  }

  Napi::Object object() const { return object_; }

 private:
  Napi::Env env_;
  Napi::Object object_;
};

// An empty reason means that there is none.
std::optional<std::string> words(const std::string& reason) {
  return reason.empty() ? std::nullopt : std::optional(reason);
}

template <typename Item, typename Wrap>
Napi::Array list(Napi::Env env, const std::vector<Item>& items, Wrap wrap) {
  Napi::Array array = Napi::Array::New(env, items.size());
  for (size_t i = 0; i < items.size(); ++i) array.Set(static_cast<uint32_t>(i), wrap(env, items[i]));
  return array;
}

Napi::Value wrap_nvml_device(Napi::Env env, const nvml::DeviceInfo& device) {
  Record record(env);
  std::optional<std::string> capability;
  if (device.compute_capability) {
    capability = std::to_string(device.compute_capability->major) + "." +
                 std::to_string(device.compute_capability->minor);
  }
  record.set("index", device.index);
  record.set("name", device.name);
  record.set("uuid", device.uuid);
  record.set("pci", device.pci);
  record.set("pciId", device.pci_id);
  record.set("computeCapability", capability);
  record.set("memory", device.memory);
  record.set("problem", words(device.problem));
  record.set("unavailable", device.unavailable);
  return record.object();
}

Napi::Value wrap_nvml(Napi::Env env, const nvml::Report& report) {
  Record record(env);
  record.set("reason", words(report.reason));
  record.set("driver", report.driver);
  record.set("cudaVersion", report.cuda_version);
  record.set("devices", list(env, report.devices, wrap_nvml_device));
  return record.object();
}

Napi::Value wrap_cuda_device(Napi::Env env, const cuda::DeviceInfo& device) {
  Record record(env);
  std::optional<std::string> capability;
  if (device.major && device.minor) {
    capability = std::to_string(*device.major) + "." + std::to_string(*device.minor);
  }
  record.set("ordinal", device.ordinal);
  record.set("name", device.name);
  record.set("uuid", device.uuid);
  record.set("pci", device.pci);
  record.set("computeCapability", capability);
  record.set("memory", device.memory);
  record.set("smCount", device.sm_count);
  record.set("integrated", device.integrated);
  record.set("pageableMemoryAccess", device.pageable_memory_access);
  record.set("managedMemory", device.managed_memory);
  record.set("concurrentManagedAccess", device.concurrent_managed_access);
  return record.object();
}

Napi::Value wrap_cuda(Napi::Env env, const cuda::Report& report) {
  Record record(env);
  record.set("reason", words(report.reason));
  record.set("kernelsProblem", words(report.kernels_problem));
  record.set("version", report.version);
  record.set("devices", list(env, report.devices, wrap_cuda_device));
  return record.object();
}

Napi::Value wrap_process(Napi::Env env, const nvml::Process& process) {
  Record record(env);
  record.set("pid", process.pid);
  record.set("bytes", process.bytes);
  record.set("kind", std::string(process.graphics ? "graphics" : "compute"));
  return record.object();
}

Napi::Value wrap_sample(Napi::Env env, const nvml::Sample& sample) {
  Record throttled(env);
  throttled.set("powerCap", sample.throttled.power_cap);
  throttled.set("thermal", sample.throttled.thermal);
  throttled.set("hardwareThermal", sample.throttled.hardware_thermal);
  throttled.set("powerBrake", sample.throttled.power_brake);

  Record record(env);
  record.set("utilization", sample.utilization);
  record.set("memory", sample.memory);
  record.set("temperature", sample.temperature);
  record.set("power", sample.power);
  record.set("powerLimit", sample.power_limit);
  record.set("graphicsClock", sample.graphics);
  record.set("smClock", sample.sm);
  record.set("memoryClock", sample.memory_clock);
  record.set("videoClock", sample.video);
  record.set("maxSmClock", sample.max_sm);
  record.set("eventReasons", sample.event_reasons);
  record.set("throttled", throttled.object());
  record.set("processes", sample.processes ? Napi::Value(list(env, *sample.processes, wrap_process))
                                           : Napi::Value(env.Null()));
  record.set("unavailable", sample.unavailable);
  return record.object();
}

Napi::Value wrap_cublaslt(Napi::Env env, const cuda::CublasLtReport& report) {
  Record record(env);
  record.set("reason", words(report.reason));
  record.set("library", report.library);
  record.set("version", report.version);
  return record.object();
}

}  // namespace

Napi::Value query_nvml(const Napi::CallbackInfo& info) {
  return start_query<nvml::Report>(info.Env(), nvml::query, wrap_nvml);
}

Napi::Value query_cuda(const Napi::CallbackInfo& info) {
  return start_query<cuda::Report>(info.Env(), cuda::query, wrap_cuda);
}

Napi::Value sample_gpu(const Napi::CallbackInfo& info) {
  const std::string uuid = info[0].ToString().Utf8Value();
  return start_query<nvml::Sample>(
      info.Env(), [uuid] { return nvml::sample(uuid); }, wrap_sample);
}

Napi::Value query_cublaslt(const Napi::CallbackInfo& info) {
  return start_query<cuda::CublasLtReport>(info.Env(), cuda::query_cublaslt, wrap_cublaslt);
}

Napi::Value kernel_families(const Napi::CallbackInfo& info) {
  Napi::Array families = Napi::Array::New(info.Env());
  for (const cuda::KernelImage& image : cuda::kernel_images()) {
    families.Set(families.Length(), Napi::String::New(info.Env(), image.family));
  }
  return families;
}

}  // namespace spark::napi
