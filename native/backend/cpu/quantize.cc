#include "backend/cpu/byte_loops.h"
#include "backend/cpu/cpu.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements worth waking a thread for

// Calls body(first element, count, channel) for pieces of lines of one channel, from several threads.
template <typename Args, typename Body>
void for_each_piece(const Args& args, const Body& body) {
  const int64_t lines = args.outer * args.channels, pieces = (args.inner + kGrain - 1) / kGrain;
  parallel_for(lines * pieces, 1 + kGrain / (args.inner + 1), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t line = index / pieces, at = index % pieces * kGrain;
      const int64_t count = args.inner - at < kGrain ? args.inner - at : kGrain;
      body(line * args.inner + at, count, line % args.channels);
    }
  });
}

}  // namespace

void quantize(const QuantizeArgs& args) {
  for_each_piece(args, [&](int64_t first, int64_t count, int64_t c) {
    const ByteRounding rounding{args.zero ? args.zero[c] : 0, args.dtype == DType::kI8};
    byte_loops().quantize(args.x + first, count, args.scale[c], rounding,
                          static_cast<uint8_t*>(args.y) + first);
  });
}

void dequantize(const DequantizeArgs& args) {
  for_each_piece(args, [&](int64_t first, int64_t count, int64_t c) {
    byte_loops().dequantize(static_cast<const uint8_t*>(args.x) + first, args.dtype == DType::kI8, count,
                            args.zero ? args.zero[c] : 0, args.scale[c], args.y + first);
  });
}

void lookup(const LookupArgs& args) {
  parallel_for(args.count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) args.y[i] = args.table[args.x[i]];
  });
}

}  // namespace spark::cpu
