#include "backend/cpu/cpu.h"
#include "backend/cpu/formats.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements a thread takes at a time

template <typename Src, typename Dst>
void cast_elements(const CastArgs& args) {
  const auto* src = static_cast<const typename Src::Code*>(args.src);
  auto* dst = static_cast<typename Dst::Code*>(args.dst);
  const uint32_t limit = cast_limit<Dst>(args.saturate);
  parallel_for(args.count, kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) dst[i] = Dst::encode(Src::decode(src[i]), limit);
  });
}

}  // namespace

void cast(const CastArgs& args) {
  with_format("cast", args.src_dtype, [&](auto src) {
    with_format("cast", args.dst_dtype, [&](auto dst) { cast_elements<decltype(src), decltype(dst)>(args); });
  });
}

}  // namespace spark::cpu
