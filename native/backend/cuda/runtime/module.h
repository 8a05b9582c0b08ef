// module.h: the kernels of one device. A family (fatbin) is loaded when one of its kernels is first used.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/runtime/driver.h"
#include "backend/cuda/runtime/kernel_images.h"

namespace spark::cuda {

class Device;

struct Function {
  CUfunction handle;
  unsigned shared_bytes;  // what it was last allowed
  // Bytes of each parameter; no value where the driver does not tell.
  std::optional<std::vector<size_t>> parameter_bytes;
};

class Modules {
 public:
  explicit Modules(Device& device) : device_(device) {}

  // The kernel, ready to be launched with that much dynamic shared memory. The device must be current. Throws
  // ERR_UNSUPPORTED when the addon was built without the family, ERR_CUDA when it cannot be loaded.
  const Function& function(std::string_view family, std::string_view kernel, unsigned shared_bytes);

  // Loads every family; failures are left to function(), unless the driver takes none: then that is thrown.
  void preload();

 private:
  struct Family {
    CUmodule module;
    std::map<std::string, Function, std::less<>> functions;
  };

  Family& load(std::string_view family);
  Function find(CUmodule module, std::string_view family, const std::string& kernel);
  std::optional<std::vector<size_t>> parameter_bytes(CUfunction handle);

  Device& device_;
  std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
};

}  // namespace spark::cuda
