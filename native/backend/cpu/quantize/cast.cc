// cast.cc: casts between element types.
#include <cstring>

#include "backend/cpu/cpu.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/quantize/formats.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;      // elements a thread takes at a time
constexpr int64_t kPastCache = 1 << 26;  // bytes of source and result that no cache holds together

// Between the formats of tensors and checkpoints.
void cast_formats(const CastArgs& args) {
  const auto* src = static_cast<const uint8_t*>(args.src);
  auto* dst = static_cast<uint8_t*>(args.dst);
  const int64_t src_bytes = dtype_bits(args.src_dtype) / 8, dst_bytes = dtype_bits(args.dst_dtype) / 8;
  const bool past_cache = args.count * (src_bytes + dst_bytes) >= kPastCache;
  parallel_for(args.count, kGrain, [&](int64_t begin, int64_t end) {
    kernels().precision.cast(args.src_dtype, args.dst_dtype, args.saturate, past_cache,
                             src + begin * src_bytes, dst + begin * dst_bytes, end - begin);
  });
}

}  // namespace

void cast(const CastArgs& args) {
  if (args.count == 0) return;  // empty operands may have no address
  if (args.bits) {
    std::memcpy(args.dst, args.src, static_cast<size_t>(args.count) * dtype_bits(args.src_dtype) / 8);
    return;
  }
  if (is_format(args.src_dtype) && is_format(args.dst_dtype)) return cast_formats(args);
  domain_of(args.dst_dtype);  // refuses what has no elements
  const Conversion conversion{args.saturate, args.rounding};
  with_number(args.src_dtype, [&](auto number) {
    using V = decltype(number);
    parallel_for(args.count, kGrain, [&](int64_t begin, int64_t end) {
      V buffer[kRun];
      for (int64_t at = begin; at < end; at += kRun) {
        const int64_t count = std::min(kRun, end - at);
        const V* values = numbers(args.src_dtype, args.src, at, 1, count, buffer);
        store_elements(args.dst_dtype, values, count, args.dst, at, 1, conversion);
      }
    });
  });
}

}  // namespace spark::cpu
