// module.cc: fatbins and their kernels.
#include "backend/cuda/runtime/module.h"

#include <exception>

#include "backend/cuda/runtime/device.h"
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

std::optional<std::vector<size_t>> Modules::parameter_bytes(CUfunction handle) {
  if (!device_.driver.cuFuncGetParamInfo) return std::nullopt;
  std::vector<size_t> all;
  size_t offset, bytes;
  CUresult result;
  while ((result = device_.driver.cuFuncGetParamInfo(handle, all.size(), &offset, &bytes)) == kSuccess) {
    all.push_back(bytes);
  }
  if (result != kInvalidValue) return std::nullopt;  // an index past the last one is invalid
  return all;
}

Function Modules::find(CUmodule module, std::string_view family, const std::string& kernel) {
  CUfunction handle;
  device_.check(device_.driver.cuModuleGetFunction(&handle, module, kernel.c_str()),
                message("finding the kernel ", family, "/", kernel));
  return {handle, kSharedWithoutAsking, parameter_bytes(handle)};
}

const Function& Modules::function(std::string_view family, std::string_view kernel, unsigned shared_bytes) {
  std::lock_guard lock(mutex_);
  Family& loaded = load(family);
  auto found = loaded.functions.find(kernel);
  if (found == loaded.functions.end()) {
    const std::string name(kernel);
    found = loaded.functions.emplace(name, find(loaded.module, family, name)).first;
  }
  Function& function = found->second;
  if (shared_bytes > function.shared_bytes) {
    device_.check(device_.driver.cuFuncSetAttribute(function.handle, kMaxDynamicSharedBytes,
                                                    static_cast<int>(shared_bytes)),
                  message("asking for ", shared_bytes, " bytes of shared memory for ", kernel));
    function.shared_bytes = shared_bytes;
  }
  return function;
}

void Modules::preload() {
  std::lock_guard lock(mutex_);
  std::exception_ptr failure;
  for (const KernelImage& image : kernel_images()) {
    try {
      load(image.family);
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure && families_.empty()) std::rethrow_exception(failure);
}

}  // namespace spark::cuda
