#include "backend/cuda/module.h"

#include "backend/cuda/device.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

constexpr unsigned kSharedWithoutAsking = 48 << 10;
constexpr int kMaxDynamicSharedBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

}  // namespace

Modules::Family& Modules::load(std::string_view family) {
  if (const auto found = families_.find(family); found != families_.end()) return found->second;
  for (const KernelImage& image : kernel_images()) {
    if (family != image.family) continue;
    CUmodule module;
    device_.check(device_.driver.cuModuleLoadData(&module, image.begin),
                  message("loading the kernels '", family, "'"));
    return families_.emplace(family, Family{module, {}}).first->second;
  }
  throw Error("ERR_UNSUPPORTED", message("this addon was built without the CUDA kernels '", family,
                                         "'; build it where nvcc 12.9 or newer is installed"));
}

CUfunction Modules::function(std::string_view family, std::string_view kernel, unsigned shared_bytes) {
  std::lock_guard lock(mutex_);
  Family& loaded = load(family);
  auto found = loaded.functions.find(kernel);
  if (found == loaded.functions.end()) {
    const std::string name(kernel);
    CUfunction handle;
    device_.check(device_.driver.cuModuleGetFunction(&handle, loaded.module, name.c_str()),
                  message("finding the kernel ", family, "/", name));
    found = loaded.functions.emplace(name, Function{handle, kSharedWithoutAsking}).first;
  }
  Function& function = found->second;
  if (shared_bytes > function.shared_bytes) {
    device_.check(device_.driver.cuFuncSetAttribute(function.handle, kMaxDynamicSharedBytes,
                                                    static_cast<int>(shared_bytes)),
                  message("asking for ", shared_bytes, " bytes of shared memory for ", kernel));
    function.shared_bytes = shared_bytes;
  }
  return function.handle;
}

void Modules::preload() {
  std::lock_guard lock(mutex_);
  for (const KernelImage& image : kernel_images()) {
    try {
      load(image.family);
    } catch (const Error&) {
    }
  }
}

}  // namespace spark::cuda
