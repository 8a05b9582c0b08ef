// bytes.cu: from f32 to quantized bytes and back, and tables, sums, products and means of quantized bytes.
// A thread loads its vectors before it computes with the first; neighbouring threads have neighbouring
// vectors. Signed bytes are flipped to unsigned ones, which are larger by 128. Every step in f32 is rounded
// once, so results have the bits of the CPU. y may be an operand: a thread stores where it has loaded.
// Reference: native/backend/cpu/quantize/quantize.cc
#include "backend/integer_args.h"
#include "core/quantizers.h"
#include "kernels/gemm/bytes.cuh"
#include "kernels/quantize/blocks.h"
#include "kernels/quantize/saturate.cuh"
#include "kernels/reduce.cuh"

namespace spark {
namespace {

// Scale and zero point of bytes.
struct Affine {
  float scale;
  int32_t zero;
  uint32_t flip;  // 0x80 of signed bytes, else 0

  __device__ Affine(DType dtype, const float* scales, const int32_t* zeros, int64_t channel)
      : scale(scales[channel]), zero(zeros ? zeros[channel] : 0), flip(dtype == DType::kI8 ? 0x80 : 0) {}
  __device__ explicit Affine(const ScaledBytes& bytes) : Affine(bytes.dtype, bytes.scale, bytes.zero, 0) {}

  __device__ float value(uint32_t byte) const {
    const int32_t distance = static_cast<int32_t>(byte ^ flip) - (static_cast<int32_t>(flip) + zero);
    return multiply(static_cast<float>(distance), scale);
  }

  __device__ uint8_t code(float x) const { return saturated(divide(x, scale), zero, flip != 0); }
};

// Where vector `v` of so many elements of this thread begins, each thread having kVectors.
template <int kVectors>
__device__ int64_t vector_at(int v, int length) {
  return ((int64_t{blockIdx.x} * kVectors + v) * blockDim.x + threadIdx.x) * length;
}

// The same scale for all elements.
template <typename Args>
class OneScale {
 public:
  __device__ explicit OneScale(const Args& args) : affine_(args.dtype, args.scale, args.zero, 0) {}
  __device__ void go_to(int64_t) {}
  __device__ void next() {}
  __device__ const Affine& affine() const { return affine_; }

 private:
  Affine affine_;
};

// The scale of the channel of an element, and of those behind it.
template <typename Args>
class ChannelScales {
 public:
  __device__ explicit ChannelScales(const Args& args)
      : args_(args), affine_(args.dtype, args.scale, args.zero, 0) {}

  // Divisions of 64 bits cost several times those of 32.
  __device__ void go_to(int64_t position) {
    if (args_.outer * args_.channels * args_.inner < int64_t{1} << 31) {
      find(static_cast<uint32_t>(position), static_cast<uint32_t>(args_.inner),
           static_cast<uint32_t>(args_.channels));
    } else {
      find(position, args_.inner, args_.channels);
    }
    affine_ = Affine(args_.dtype, args_.scale, args_.zero, channel_);
  }
  __device__ void next() {
    if (++at_ < args_.inner) return;
    at_ = 0;
    if (++channel_ == args_.channels) channel_ = 0;
    affine_ = Affine(args_.dtype, args_.scale, args_.zero, channel_);
  }
  __device__ const Affine& affine() const { return affine_; }

 private:
  template <typename Position>
  __device__ void find(Position position, Position inner, Position channels) {
    const Position line = position / inner;
    at_ = position - line * inner;
    channel_ = line % channels;
  }

  const Args& args_;
  Affine affine_;
  int64_t at_ = 0, channel_ = 0;
};

// to[i] = encode(from[i], affine) of all elements, whose loads are under way together.
template <typename Scales, typename From, typename To, typename Args, typename Encode>
__device__ void cast_affine(const Args& args, const From* from, To* to, const Encode& encode) {
  using namespace affine_block;
  const int64_t count = args.outer * args.channels * args.inner;
  Bytes<kLength * sizeof(From)> sources[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = vector_at<kVectors>(v, kLength);
    sources[v].load(from + at, count - at);
  }
  Scales scales(args);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = vector_at<kVectors>(v, kLength);
    if (at >= count) return;
    scales.go_to(at);
    Bytes<kLength * sizeof(To)> target;
#pragma unroll
    for (int i = 0; i < kLength; ++i) {
      target.template set<To>(i, encode(sources[v].template at<From>(i), scales.affine()));
      scales.next();
    }
    target.store(to + at, count - at);
  }
}

template <typename Scales>
__device__ void quantize(const QuantizeArgs& args) {
  cast_affine<Scales>(args, args.x, static_cast<uint8_t*>(args.y),
                      [](float x, const Affine& affine) { return affine.code(x); });
}

template <typename Scales>
__device__ void dequantize(const DequantizeArgs& args) {
  cast_affine<Scales>(args, static_cast<const uint8_t*>(args.x), args.y,
                      [](uint8_t x, const Affine& affine) { return affine.value(x); });
}

template <typename Combine>
__device__ void binary_bytes(const BinaryBytesArgs& args, const Combine& combine) {
  const int64_t first = vector_at<1>(0, kRun), inside = args.count - first;
  Bytes<kRun> a, b, y;
  a.load(static_cast<const uint8_t*>(args.a.data) + first, inside);
  b.load(static_cast<const uint8_t*>(args.b.data) + first, inside);
  const Affine of_a(args.a), of_b(args.b), of_y(args.y);
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    y.set<uint8_t>(i, of_y.code(combine(of_a.value(a.at<uint8_t>(i)), of_b.value(b.at<uint8_t>(i)))));
  }
  y.store(static_cast<uint8_t*>(args.y.data) + first, inside);
}

// What thread `lane` of kLanes adds to the sum of a row of bytes.
template <int kLanes>
__device__ uint32_t share_of_sum(const uint8_t* row, int64_t count, uint32_t flip, int lane) {
  const uint32_t flips = flip * 0x01010101u, ones = 0x01010101u;
  const int64_t unaligned = -reinterpret_cast<uintptr_t>(row) % kRun;
  const int64_t head = min(count, unaligned), words = (count - head) / kRun;
  const int64_t end = head + words * kRun + lane - kRun;  // of lanes from kRun on
  uint32_t sum = 0;
  if (lane < head) sum += row[lane] ^ flip;
  if (lane >= kRun && end < count) sum += row[end] ^ flip;
#pragma unroll 4
  for (int64_t i = lane; i < words; i += kLanes) {
    const Bytes<kRun> bytes = *reinterpret_cast<const Bytes<kRun>*>(row + head + i * kRun);
#pragma unroll
    for (const uint32_t word : bytes.words) sum = __dp4a(word ^ flips, ones, sum);
  }
  return sum;
}

__device__ const uint8_t* row_of(const MeanBytesArgs& args, int64_t row) {
  return static_cast<const uint8_t*>(args.x.data) + row * args.cols;
}

// y[row] of the sum of flipped bytes.
__device__ void store_mean(const MeanBytesArgs& args, int64_t row, int64_t sum) {
  const Affine of_x(args.x), of_y(args.y);
  const int64_t distance = sum - args.cols * (static_cast<int64_t>(of_x.flip) + of_x.zero);
  const double mean = static_cast<double>(distance) * of_x.scale / static_cast<double>(args.cols);
  static_cast<uint8_t*>(args.y.data)[row] = of_y.code(static_cast<float>(mean));
}

}  // namespace
}  // namespace spark

extern "C" __global__ void __launch_bounds__(spark::affine_block::kThreads)
    quantize_bytes(spark::QuantizeArgs args) {
  spark::quantize<spark::OneScale<spark::QuantizeArgs>>(args);
}

extern "C" __global__ void __launch_bounds__(spark::affine_block::kThreads)
    quantize_bytes_channels(spark::QuantizeArgs args) {
  spark::quantize<spark::ChannelScales<spark::QuantizeArgs>>(args);
}

extern "C" __global__ void __launch_bounds__(spark::affine_block::kThreads)
    dequantize_bytes(spark::DequantizeArgs args) {
  spark::dequantize<spark::OneScale<spark::DequantizeArgs>>(args);
}

extern "C" __global__ void __launch_bounds__(spark::affine_block::kThreads)
    dequantize_bytes_channels(spark::DequantizeArgs args) {
  spark::dequantize<spark::ChannelScales<spark::DequantizeArgs>>(args);
}

extern "C" __global__ void __launch_bounds__(spark::binary_bytes_block::kThreads)
    binary_bytes_add(spark::BinaryBytesArgs args) {
  spark::binary_bytes(args, [](float a, float b) { return a + b; });
}

extern "C" __global__ void __launch_bounds__(spark::binary_bytes_block::kThreads)
    binary_bytes_mul(spark::BinaryBytesArgs args) {
  spark::binary_bytes(args, [](float a, float b) { return a * b; });
}

extern "C" __global__ void __launch_bounds__(spark::lookup_block::kThreads)
    lookup_bytes(spark::LookupArgs args) {
  using namespace spark::lookup_block;
  __shared__ uint8_t table[kThreads];
  spark::Bytes<spark::kRun> vectors[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = spark::vector_at<kVectors>(v, spark::kRun);
    vectors[v].load(args.x + at, args.count - at);
  }
  table[threadIdx.x] = args.table[threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    spark::Bytes<spark::kRun> results;
#pragma unroll
    for (int i = 0; i < spark::kRun; ++i) results.set<uint8_t>(i, table[vectors[v].at<uint8_t>(i)]);
    const int64_t at = spark::vector_at<kVectors>(v, spark::kRun);
    results.store(args.y + at, args.count - at);
  }
}

// A warp for each row.
extern "C" __global__ void __launch_bounds__(spark::mean_bytes_block::kThreads)
    mean_bytes(spark::MeanBytesArgs args) {
  using spark::kWarp;
  const int64_t row = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp;
  if (row >= args.rows) return;
  const uint32_t flip = spark::Affine(args.x).flip, lane = threadIdx.x % kWarp;
  uint32_t sum = spark::share_of_sum<kWarp>(spark::row_of(args, row), args.cols, flip, lane);
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, lanes);
  if (lane == 0) spark::store_mean(args, row, sum);
}

// sums[rows, parts] of `size` bytes each, a block for each.
extern "C" __global__ void __launch_bounds__(spark::mean_bytes_block::kThreads)
    mean_bytes_parts(spark::MeanBytesArgs args, int64_t parts, int64_t size, int64_t* sums) {
  const int64_t first = blockIdx.x % parts * size, count = min(size, args.cols - first);
  const uint8_t* part = spark::row_of(args, blockIdx.x / parts) + first;
  const uint32_t share = spark::share_of_sum<spark::mean_bytes_block::kThreads>(
      part, count, spark::Affine(args.x).flip, threadIdx.x);
  const int64_t sum = spark::block_sum<int64_t>(share);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(spark::mean_bytes_block::kThreads)
    mean_bytes_finish(spark::MeanBytesArgs args, int64_t parts, const int64_t* sums) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= args.rows) return;
  int64_t sum = 0;
  for (int64_t part = row * parts; part < (row + 1) * parts; ++part) sum += sums[part];
  spark::store_mean(args, row, sum);
}
