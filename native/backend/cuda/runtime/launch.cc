// launch.cc: checked kernel launches.
#include "backend/cuda/runtime/launch.h"

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/module.h"
#include "backend/cuda/runtime/stream.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

constexpr int64_t kMaxGridX = 2147483647;
constexpr int64_t kMaxGridYZ = 65535;
constexpr int64_t kMaxThreads = 1024;  // per block
constexpr int kMaxThreadsZ = 64;

void check_limits(std::string_view kernel, Grid grid, Threads threads, unsigned shared_bytes,
                  unsigned max_shared_bytes) {
  const auto refuse = [&](auto... what) {
    throw Error("ERR_SHAPE", message("the operands are too large for kernel ", kernel, ": ", what...));
  };
  if (grid.x < 0 || grid.y < 0 || grid.z < 0 || grid.x > kMaxGridX || grid.y > kMaxGridYZ ||
      grid.z > kMaxGridYZ) {
    refuse("a grid of ", grid.x, " x ", grid.y, " x ", grid.z, " blocks; at most ", kMaxGridX, " x ",
           kMaxGridYZ, " x ", kMaxGridYZ);
  }
  const int64_t count = int64_t{threads.x} * threads.y * threads.z;
  if (threads.x < 1 || threads.y < 1 || threads.z < 1 || threads.z > kMaxThreadsZ || count > kMaxThreads) {
    refuse("a block of ", threads.x, " x ", threads.y, " x ", threads.z, " threads; at most ", kMaxThreads,
           " in all, ", kMaxThreadsZ, " in z");
  }
  if (shared_bytes > max_shared_bytes) {
    refuse(shared_bytes, " bytes of shared memory; the device has ", max_shared_bytes);
  }
}

void check_arguments(std::string_view kernel, std::span<const size_t> given,
                     std::span<const size_t> expected) {
  if (given.size() != expected.size()) {
    throw Error("ERR_INTERNAL", message("kernel ", kernel, " is given ", given.size(),
                                        " arguments and takes ", expected.size()));
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] == expected[i]) continue;
    throw Error("ERR_INTERNAL", message("argument ", i, " of kernel ", kernel, " has ", given[i],
                                        " bytes and its parameter ", expected[i]));
  }
}

}  // namespace

void launch_packed(std::string_view family, std::string_view kernel, Grid grid, Threads threads,
                   unsigned shared_bytes, void** parameters, std::span<const size_t> bytes) {
  Device& device = Device::current();
  check_limits(kernel, grid, threads, shared_bytes, device.attributes.shared_bytes);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  const Function& function = device.modules().function(family, kernel, shared_bytes);
  if (function.parameter_bytes) check_arguments(kernel, bytes, *function.parameter_bytes);
  device.check(
      device.driver.cuLaunchKernel(function.handle, grid.x, grid.y, grid.z, threads.x, threads.y, threads.z,
                                   shared_bytes, device.stream().handle(), parameters, nullptr),
      message("launching kernel ", kernel));
}

}  // namespace spark::cuda
