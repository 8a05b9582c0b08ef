#include "backend/cpu/cpu.h"
#include "backend/cpu/formats.h"
#include "backend/cpu/precision_loops.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;      // elements a thread takes at a time
constexpr int64_t kPastCache = 1 << 26;  // bytes of a result that no cache holds

}  // namespace

void cast(const CastArgs& args) {
  check_format("cast", args.src_dtype);
  check_format("cast", args.dst_dtype);
  const auto* src = static_cast<const uint8_t*>(args.src);
  auto* dst = static_cast<uint8_t*>(args.dst);
  const int64_t src_bytes = dtype_bits(args.src_dtype) / 8, dst_bytes = dtype_bits(args.dst_dtype) / 8;
  const bool past_cache = args.count * dst_bytes >= kPastCache;
  parallel_for(args.count, kGrain, [&](int64_t begin, int64_t end) {
    precision_loops().cast(args.src_dtype, args.dst_dtype, args.saturate, past_cache, src + begin * src_bytes,
                           dst + begin * dst_bytes, end - begin);
  });
}

}  // namespace spark::cpu
