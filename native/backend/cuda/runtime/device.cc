// device.cc: devices: primary context, attributes, streams, modules and pools.
#include "backend/cuda/runtime/device.h"

#include <algorithm>
#include <map>

#include "backend/cuda/gemm/cublaslt.h"
#include "backend/cuda/runtime/kernel_images.h"
#include "backend/cuda/runtime/memory.h"
#include "backend/cuda/runtime/module.h"
#include "backend/cuda/runtime/stream.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

thread_local Device* current_device = nullptr;

struct Registry {
  std::mutex opening;  // one device is opened at a time; that can take long
  std::mutex mutex;    // guards `devices`
  std::map<int, Device*> devices;

  static Registry& get() {
    static Registry* registry = new Registry;  // leaked: used until the process is gone
    return *registry;
  }
};

// Failures after which every call in the context fails with the same code.
bool ruins_context(CUresult result) {
  constexpr CUresult kCodes[] = {214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719};
  return std::find(std::begin(kCodes), std::end(kCodes), result) != std::end(kCodes);
}

std::string advice(CUresult result, int driver_version) {
  switch (result) {
    case kOutOfMemory:
      return "; dispose buffers, use a smaller batch, or run with backend 'cpu'";
    case 200:
    case 209:
    case 222:
      if (const std::string problem = kernels_problem(driver_version); !problem.empty()) {
        return "; " + problem + ". Update it, or run with backend 'cpu'";
      }
      return "; this build of the addon has no kernels for the GPU: rebuild it with its architecture in "
             "DGX_SPARK_CUDA_ARCHS, or run with backend 'cpu'";
    case 702:
      return "; a kernel ran longer than a GPU with a display allows: compute on one without, or on smaller "
             "operands";
    case 803:
      return "; parts of the NVIDIA driver are of different versions: restart the machine";
    case 700:
    case 716:
    case 719:
      return "; a kernel touched memory it may not";
    default:
      return "";
  }
}

}  // namespace

Device::Device(int ordinal) : ordinal(ordinal), driver(Driver::get()) {
  driver.check(driver.cuDeviceGet(&handle_, ordinal), "cuDeviceGet");
  read_attributes();
  try {
    open_context();
  } catch (const Error&) {
    if (!poisoned_) throw;
    throw Error(
        "ERR_CUDA",
        message("device ", ordinal, " has a context that failed before, and something else ",
                "in this process holds it (ONNX Runtime, another addon): restart the ", "process. ", cause_));
  }
  modules_ = std::make_unique<Modules>(*this);
  staging_ = std::make_unique<Pool>(stream(), MemoryKind::kPinned);
}

void Device::open_context() {
  check(driver.cuDevicePrimaryCtxRetain(&context_, handle_), "opening the CUDA context");
  try {
    DeviceScope scope(*this);
    streams_[0] = std::make_unique<Stream>(*this);
  } catch (const Error&) {
    driver.cuDevicePrimaryCtxRelease(handle_);
    throw;
  }
}

Stream& Device::stream(uint32_t index) {
  const std::lock_guard lock(opening_);
  std::unique_ptr<Stream>& stream = streams_[index % kStreams];
  if (!stream) stream = std::make_unique<Stream>(*this);
  return *stream;
}

int Device::attribute(int attribute, const char* name) {
  int value = 0;
  check(driver.cuDeviceGetAttribute(&value, attribute, handle_), name);
  return value;
}

void Device::read_attributes() {
  attributes.compute_capability = attribute(kComputeCapabilityMajor, "reading the compute capability") * 10 +
                                  attribute(kComputeCapabilityMinor, "reading the compute capability");
  attributes.multiprocessors = attribute(kMultiprocessorCount, "reading the multiprocessor count");
  attributes.shared_bytes = attribute(kMaxSharedMemoryPerBlockOptin, "reading the shared memory size");
  attributes.integrated = attribute(kIntegrated, "reading whether the GPU is integrated");
  // Where the CPU may not touch managed memory while a kernel runs, a view of it could crash the process.
  attributes.managed = attribute(kManagedMemory, "reading managed memory support") &&
                       attribute(kConcurrentManagedAccess, "reading managed memory support");
  // With page tables of its own (HMM on x86) a GPU moves each page it touches here and back, at a fraction of
  // the speed of copies.
  attributes.pageable = attribute(kPageableMemoryAccess, "reading pageable memory support") &&
                        attribute(kPageableUsesHostPageTables, "reading pageable memory support");
}

Device& Device::open(int ordinal) {
  const Driver& driver = Driver::get();
  if (!driver.reason.empty()) {
    const char* remedy =
        "`dgx-spark check` says what is missing, and backend 'auto' or 'cpu' computes on the CPU";
    throw Error("ERR_NO_CUDA", message("CUDA is not available: ", driver.reason, "; ", remedy));
  }
  if (ordinal < 0 || ordinal >= driver.devices) {
    throw Error("ERR_NO_CUDA",
                message("there is no CUDA device ", ordinal, "; the driver reports ", driver.devices));
  }
  Registry& registry = Registry::get();
  std::lock_guard opening(registry.opening);
  Device* known;
  {
    std::lock_guard lock(registry.mutex);
    known = registry.devices[ordinal];
  }
  if (known && !known->poisoned_) return *known;
  if (known) known->close();
  Device* device = new Device(ordinal);
  std::lock_guard lock(registry.mutex);
  registry.devices[ordinal] = device;
  return *device;
}

Device& Device::get(int ordinal) {
  Registry& registry = Registry::get();
  Device* device = nullptr;
  {
    std::lock_guard lock(registry.mutex);
    const auto found = registry.devices.find(ordinal);
    if (found != registry.devices.end()) device = found->second;
  }
  if (!device) throw Error("ERR_NO_CUDA", message("CUDA device ", ordinal, " is not open"));
  device->require_healthy();
  return *device;
}

Device& Device::current() {
  if (!current_device) throw Error("ERR_INTERNAL", "no CUDA device is current on this thread");
  return *current_device;
}

void Device::check(CUresult result, const std::string& doing) {
  if (result == kSuccess) return;
  const std::string text = message(doing, " failed on device ", ordinal, ": ", driver.error_text(result),
                                   advice(result, driver.version));
  if (ruins_context(result)) {
    std::lock_guard lock(mutex_);
    if (!poisoned_) cause_ = text;
    poisoned_ = true;
  }
  require_healthy();
  throw Error(result == kOutOfMemory ? "ERR_OUT_OF_MEMORY" : "ERR_CUDA", text);
}

void Device::require_healthy() const {
  if (poisoned_) throw_cause();
}

void Device::throw_cause() const {
  std::lock_guard lock(mutex_);
  if (closed_) {
    throw Error("ERR_CUDA",
                message("device ", ordinal, " was closed after a failure: make plans, layers and ",
                        "models of it again. ", cause_));
  }
  throw Error("ERR_CUDA", cause_ + ". Dispose every buffer of the device, then open it again");
}

// Gives the ruined context back, unless memory of it is alive: the context goes with its last reference and
// takes its memory along, views of JavaScript included.
void Device::close() {
  if (closed_) return;
  closed_ = true;
  for (int scopes; (scopes = scopes_) > 0;) scopes_.wait(scopes);
  if (live_blocks > 0) {
    closed_ = false;
    std::lock_guard lock(mutex_);
    throw Error(
        "ERR_CUDA",
        message(
            "device ", ordinal, " cannot be opened again while ", live_blocks,
            " buffers of it are alive, those of models and layers included; dispose them. It failed before: ",
            cause_));
  }
  driver.cuDevicePrimaryCtxRelease(handle_);
}

bool Device::enter() {
  ++scopes_;
  if (!closed_) return true;
  leave();
  return false;
}

void Device::leave() {
  if (--scopes_ == 0) scopes_.notify_all();
}

void Device::preload() {
  DeviceScope scope(*this);
  modules_->preload();
  prepare_cublaslt(*this);
}

DeviceScope::DeviceScope(Device& device) : device_(device), outer_(current_device) {
  if (!device.enter()) device.throw_cause();
  try {
    device.check(device.driver.cuCtxSetCurrent(device.context_), "cuCtxSetCurrent");
  } catch (...) {
    device.leave();
    throw;
  }
  current_device = &device;
}

DeviceScope::~DeviceScope() {
  current_device = outer_;
  if (outer_) outer_->driver.cuCtxSetCurrent(outer_->context_);
  device_.leave();
}

}  // namespace spark::cuda
