// amax.cc: the maximum magnitude of a tensor.
#include <atomic>

#include "backend/cpu/cpu.h"
#include "backend/cpu/quantize/formats.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/float_formats.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1 << 16;  // elements a thread takes at a time

}  // namespace

void amax(const AmaxArgs& args) {
  check_wide_format("amax", args.dtype);
  const auto* src = static_cast<const uint8_t*>(args.src);
  const int64_t bytes = dtype_bits(args.dtype) / 8;
  std::atomic<uint32_t> result{0};  // bits of a magnitude: ordered like the numbers, NaN on top
  parallel_for(args.count, kGrain, [&](int64_t begin, int64_t end) {
    const uint32_t largest =
        float_bits(kernels().precision.amax(args.dtype, src + begin * bytes, end - begin));
    uint32_t seen = result.load();
    while (largest > seen && !result.compare_exchange_weak(seen, largest)) {
    }
  });
  args.out[0] = bits_float(result);
}

}  // namespace spark::cpu
