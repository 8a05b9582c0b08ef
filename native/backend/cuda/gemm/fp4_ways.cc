// fp4_ways.cc: the ways of each device, by its number and not its object, which is another after a failure.
#include "backend/cuda/gemm/fp4_ways.h"

#include <map>
#include <mutex>

#include "backend/cuda/runtime/device.h"

namespace spark::cuda {
namespace {

struct Allowed {
  std::mutex mutex;
  std::map<int, Fp4Ways> of;

  static Allowed& get() {
    static Allowed* allowed = new Allowed;  // leaked: used until the process is gone
    return *allowed;
  }
};

}  // namespace

void allow_fp4(int ordinal, Fp4Ways ways) {
  Allowed& allowed = Allowed::get();
  std::lock_guard lock(allowed.mutex);
  allowed.of.try_emplace(ordinal, ways);
}

Fp4Ways allowed_fp4_ways() {
  Allowed& allowed = Allowed::get();
  std::lock_guard lock(allowed.mutex);
  const auto found = allowed.of.find(Device::current().ordinal);
  return found == allowed.of.end() ? Fp4Ways{} : found->second;
}

}  // namespace spark::cuda
