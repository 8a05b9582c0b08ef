#include <algorithm>
#include <atomic>

#include "backend/cpu/cpu.h"
#include "backend/cpu/formats.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1 << 16;  // elements a thread takes at a time

// Magnitudes of every format are ordered like their codes with the sign cleared, infinity and NaN on top, so
// the maximum is one of integers. `Word` is the unsigned integer as wide as a code.
template <typename Word>
uint32_t max_magnitude(const void* data, int64_t count) {
  constexpr Word kMagnitude = static_cast<Word>(~Word{0}) >> 1;
  const auto* codes = static_cast<const Word*>(data);
  std::atomic<uint32_t> result{0};
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    Word largest = 0;
    for (int64_t i = begin; i < end; ++i) {
      largest = std::max(largest, static_cast<Word>(codes[i] & kMagnitude));
    }
    uint32_t seen = result.load();
    while (largest > seen && !result.compare_exchange_weak(seen, largest)) {
    }
  });
  return result;
}

}  // namespace

void amax(const AmaxArgs& args) {
  with_wide_format("amax", args.dtype, [&](auto format) {
    using Format = decltype(format);
    if constexpr (sizeof(typename Format::Code) == 4) {
      args.out[0] = F32::encode(bits_float(max_magnitude<uint32_t>(args.src, args.count)), 0);
    } else {
      args.out[0] = Format::decode(max_magnitude<uint16_t>(args.src, args.count));
    }
  });
}

}  // namespace spark::cpu
