// quantize.cc: int8 quantization, dequantization, and elementwise operations between them.
#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements worth waking a thread for

// Calls body(first element, count, channel) for pieces of lines of one channel, from several threads.
template <typename Args, typename Body>
void for_each_piece(const Args& args, const Body& body) {
  const int64_t lines = args.outer * args.channels, pieces = (args.inner + kGrain - 1) / kGrain;
  parallel_for(lines * pieces, grain_for(args.inner, kGrain), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t line = index / pieces, at = index % pieces * kGrain;
      const int64_t count = args.inner - at < kGrain ? args.inner - at : kGrain;
      body(line * args.inner + at, count, line % args.channels);
    }
  });
}

constexpr int64_t kPiece = 512;  // floats between bytes at a time

void read_floats(const ScaledBytes& from, int64_t first, int64_t count, float* to) {
  kernels().bytes.dequantize(static_cast<const uint8_t*>(from.data) + first, from.dtype == DType::kI8, count,
                             from.zero ? from.zero[0] : 0, from.scale[0], to);
}

void write_floats(const float* from, int64_t count, const ScaledBytes& to, int64_t first) {
  const ByteRounding rounding{to.zero ? to.zero[0] : 0, to.dtype == DType::kI8};
  kernels().bytes.quantize(from, count, to.scale[0], rounding, static_cast<uint8_t*>(to.data) + first);
}

// Calls body(first, count) for pieces of at most kPiece elements, from several threads.
template <typename Body>
void for_pieces(int64_t count, int64_t grain, const Body& body) {
  parallel_for((count + kPiece - 1) / kPiece, 1 + grain / kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * kPiece; first < end * kPiece && first < count; first += kPiece) {
      body(first, count - first < kPiece ? count - first : kPiece);
    }
  });
}

template <typename T>
int64_t sum(const void* data, int64_t first, int64_t count) {
  const T* from = static_cast<const T*>(data) + first;
  int64_t total = 0;
  for (int64_t at = 0; at < count; at += kGrain) {  // whose sum fits into 32 bits
    int32_t some = 0;
    for (int64_t i = at; i < count && i < at + kGrain; ++i) some += from[i];
    total += some;
  }
  return total;
}

}  // namespace

void quantize(const QuantizeArgs& args) {
  for_each_piece(args, [&](int64_t first, int64_t count, int64_t c) {
    const ByteRounding rounding{args.zero ? args.zero[c] : 0, args.dtype == DType::kI8};
    kernels().bytes.quantize(args.x + first, count, args.scale[c], rounding,
                             static_cast<uint8_t*>(args.y) + first);
  });
}

void dequantize(const DequantizeArgs& args) {
  for_each_piece(args, [&](int64_t first, int64_t count, int64_t c) {
    kernels().bytes.dequantize(static_cast<const uint8_t*>(args.x) + first, args.dtype == DType::kI8, count,
                               args.zero ? args.zero[c] : 0, args.scale[c], args.y + first);
  });
}

void lookup(const LookupArgs& args) {
  parallel_for(args.count, kGrain, [&](int64_t begin, int64_t end) {
    kernels().bytes.lookup(args.x + begin, end - begin, args.table, args.y + begin);
  });
}

void binary_bytes(const BinaryBytesArgs& args) {
  for_pieces(args.count, kGrain, [&](int64_t first, int64_t count) {
    float a[kPiece], b[kPiece];
    read_floats(args.a, first, count, a);
    read_floats(args.b, first, count, b);
    if (args.fn == BytesFn::kAdd) {
      for (int64_t i = 0; i < count; ++i) a[i] += b[i];
    } else {
      for (int64_t i = 0; i < count; ++i) a[i] *= b[i];
    }
    write_floats(a, count, args.y, first);
  });
}

void mean_bytes(const MeanBytesArgs& args) {
  const int64_t zero = args.cols * (args.x.zero ? args.x.zero[0] : 0);
  const double scale = args.x.scale[0], cols = static_cast<double>(args.cols);
  for_pieces(args.rows, kGrain / args.cols, [&](int64_t first, int64_t count) {
    float means[kPiece];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = (first + i) * args.cols;
      const int64_t total = args.x.dtype == DType::kI8 ? sum<int8_t>(args.x.data, at, args.cols)
                                                       : sum<uint8_t>(args.x.data, at, args.cols);
      means[i] = static_cast<float>(static_cast<double>(total - zero) * scale / cols);
    }
    write_floats(means, count, args.y, first);
  });
}

}  // namespace spark::cpu
