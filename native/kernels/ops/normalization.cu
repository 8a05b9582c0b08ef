// normalization.cu: softmax, layer/RMS/group/instance and batch normalization and their gradients, by the
// formulas of backend/network_args.h. One block per row (or channel), f32; sums in the order of reduce.cuh,
// so results depend on the sizes of a row only. norm_f32_…: f32 and 16 bits; norm_nvfp4_…: rounded for
// products. norm_scale_gradient_f32: one block per element of scale; norm_columns_gradient_f32: 32 of them
// by a chunk of the rows, where each has a column. Reference:
// native/backend/cpu/ops/{softmax,norm,batch_norm}.cc
#include "backend/network_args.h"
#include "core/quantizers.h"
#include "kernels/column_sums.cuh"
#include "kernels/gemm/product_args.h"
#include "kernels/ops/blocks.h"
#include "kernels/quantize/nvfp4_store.cuh"
#include "kernels/reduce.cuh"
#include "kernels/store.cuh"

namespace spark {
namespace {

constexpr int kAhead = 4;  // elements of a thread whose loads are under way

// use(i, load(i)) for each i < count of this thread, in order.
template <typename Load, typename Use>
__device__ void for_each_loaded(int64_t count, const Load& load, const Use& use) {
  for (int64_t first = threadIdx.x; first < count; first += kAhead * int64_t{blockDim.x}) {
    decltype(load(first)) loaded[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t i = first + k * int64_t{blockDim.x};
      if (i < count) loaded[k] = load(i);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t i = first + k * int64_t{blockDim.x};
      if (i < count) use(i, loaded[k]);
    }
  }
}

// Σ term(i) over i < count, in every thread.
template <typename Term>
__device__ float sum_over(int64_t count, const Term& term) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += term(i);
  return block_sum(sum);
}

// Σ term(load(i)) over i < count, in every thread.
template <typename Load, typename Term>
__device__ float sum_over(int64_t count, const Load& load, const Term& term) {
  float sum = 0;
  for_each_loaded(count, load, [&](int64_t, const auto& loaded) { sum += term(loaded); });
  return block_sum(sum);
}

// Where element i of channel blockIdx.x lies in [N, C, P].
struct Channel {
  int64_t channels, positions;
  __device__ int64_t at(int64_t i) const {
    return (i / positions * channels + blockIdx.x) * positions + i % positions;
  }
};

// Row blockIdx.x, normalized.
struct NormalizedRow {
  const NormArgs& args;
  int64_t first, scales;
  float mean, inv_std;

  struct Element {
    float x, scale, bias;
  };

  // All threads of the block must call it.
  __device__ explicit NormalizedRow(const NormArgs& args) : args(args) {
    const int64_t row = blockIdx.x;
    first = row * args.cols, scales = row % args.groups * args.cols;
    const auto load = [&](int64_t i) { return args.x[first + i]; };
    mean = args.centered ? sum_over(args.cols, load, [](float x) { return x; }) / args.cols : 0;
    const float squares = sum_over(args.cols, load, [&](float x) { return (x - mean) * (x - mean); });
    inv_std = 1 / sqrtf(squares / args.cols + args.eps);
    if (threadIdx.x == 0 && args.mean) args.mean[row] = mean;
    if (threadIdx.x == 0 && args.inv_std) args.inv_std[row] = inv_std;
  }

  __device__ float value(const Element& e) const {
    float value = (e.x - mean) * inv_std;
    if (args.scale) value *= e.scale;
    if (args.bias) value += e.bias;
    return value;
  }

  __device__ Element load(int64_t i) const {
    const int64_t j = args.inner == 1 ? scales + i : (scales + i) / args.inner;
    return {args.x[first + i], args.scale ? args.scale[j] : 1, args.bias ? args.bias[j] : 0};
  }

  // use(i, y[i]) for each element of this thread.
  template <typename Use>
  __device__ void for_each(const Use& use) const {
    for_each_loaded(
        args.cols, [&](int64_t i) { return load(i); },
        [&](int64_t i, const Element& e) { use(i, value(e)); });
  }
};

// y in elements of kType.
template <FloatType kType>
__device__ void norm(const NormArgs& args) {
  const NormalizedRow row(args);
  row.for_each([&](int64_t i, float y) { store_as(kType, args.y, row.first + i, y); });
}

// y in f32, and beside it in elements of kHalf.
template <FloatType kHalf>
__device__ void norm_both(const NormArgs& args) {
  const NormalizedRow row(args);
  row.for_each([&](int64_t i, float y) {
    store_as(FloatType::kF32, args.y, row.first + i, y);
    store_as(kHalf, args.y_half, row.first + i, y);
  });
}

// y in f32, unless it is null, and its rows in NVFP4. They are a multiple of kRoundedUnit long, so that all
// lanes of a warp have an element or none. Trap: y may be x.
template <bool kCodes>
__device__ void norm_nvfp4(const NormArgs& args, const Nvfp4Rows& to) {
  const NormalizedRow row(args);
  float* y = args.y ? static_cast<float*>(args.y) + row.first : nullptr;
  uint32_t largest = 0;
  row.for_each([&](int64_t i, float value) {
    largest = max(largest, float_bits(value) & 0x7FFFFFFFu);
    if (y) y[i] = value;
  });
  largest = block_reduce(largest, 0u, [](uint32_t a, uint32_t b) { return max(a, b); });
  Nvfp4Store store{to, blockIdx.x, nvfp4_row_scale(bits_float(largest))};
  if (args.y_scale != 0) store.tensor_scale = args.y_scale;
  const auto load = [&](int64_t i) { return y ? NormalizedRow::Element{y[i], 1, 0} : row.load(i); };
  for_each_loaded(args.cols, load, [&](int64_t i, const NormalizedRow::Element& e) {
    const float value = y ? e.x : row.value(e);
    kCodes ? store.store_code(i, value) : store.store_bf16(i, value);
  });
  if (kCodes) store.finish(threadIdx.x, blockDim.x);
}

}  // namespace
}  // namespace spark

extern "C" __global__ void softmax_f32(spark::SoftmaxArgs args) {
  const float* x = args.x + blockIdx.x * args.cols;
  float* y = args.y + blockIdx.x * args.cols;
  const auto load = [&](int64_t c) { return x[c]; };
  float largest = -INFINITY;
  spark::for_each_loaded(args.cols, load, [&](int64_t, float value) { largest = fmaxf(largest, value); });
  largest = spark::block_max(largest);
  const float sum = spark::sum_over(args.cols, load, [&](float value) { return expf(value - largest); });
  spark::for_each_loaded(args.cols, load, [&](int64_t c, float value) {
    y[c] = args.log ? value - largest - logf(sum) : expf(value - largest) / sum;
  });
}

extern "C" __global__ void softmax_backward_f32(spark::SoftmaxBackwardArgs args) {
  const int64_t first = blockIdx.x * args.cols;
  struct Element {
    float y, dy;
  };
  const auto load = [&](int64_t c) { return Element{args.y[first + c], args.dy[first + c]}; };
  const float sum =
      spark::sum_over(args.cols, load, [&](const Element& e) { return args.log ? e.dy : e.dy * e.y; });
  spark::for_each_loaded(args.cols, load, [&](int64_t c, const Element& e) {
    args.dx[first + c] = args.log ? e.dy - expf(e.y) * sum : e.y * (e.dy - sum);
  });
}

#define SPARK_DEFINE(type, enumerator)                           \
  extern "C" __global__ void norm_##type(spark::NormArgs args) { \
    spark::norm<spark::FloatType::enumerator>(args);             \
  }
SPARK_DEFINE(f32, kF32)
SPARK_DEFINE(bf16, kBF16)
SPARK_DEFINE(f16, kF16)

extern "C" __global__ void __launch_bounds__(spark::normalization_block::kThreadsOfLong)
    norm_f32_bf16(spark::NormArgs args) {
  spark::norm_both<spark::FloatType::kBF16>(args);
}

extern "C" __global__ void __launch_bounds__(spark::normalization_block::kThreadsOfLong)
    norm_f32_f16(spark::NormArgs args) {
  spark::norm_both<spark::FloatType::kF16>(args);
}

extern "C" __global__ void __launch_bounds__(spark::normalization_block::kThreadsOfLong)
    norm_nvfp4_codes(spark::NormArgs args, spark::Nvfp4Rows to) {
  spark::norm_nvfp4<true>(args, to);
}

extern "C" __global__ void __launch_bounds__(spark::normalization_block::kThreadsOfLong)
    norm_nvfp4_bf16(spark::NormArgs args, spark::Nvfp4Rows to) {
  spark::norm_nvfp4<false>(args, to);
}

extern "C" __global__ void norm_backward_f32(spark::NormBackwardArgs args) {
  const int64_t row = blockIdx.x, first = row * args.cols, scales = row % args.groups * args.cols;
  const float mean = args.centered ? args.mean[row] : 0, inv_std = args.inv_std[row];
  const auto gradient = [&](int64_t i) {
    const float dy = args.dy[first + i];
    return args.scale ? dy * args.scale[(scales + i) / args.inner] : dy;
  };
  const auto standard = [&](int64_t i) { return (args.x[first + i] - mean) * inv_std; };
  const float average = args.centered ? spark::sum_over(args.cols, gradient) / args.cols : 0;
  const float slope =
      spark::sum_over(args.cols, [&](int64_t i) { return gradient(i) * standard(i); }) / args.cols;
  for (int64_t i = threadIdx.x; i < args.cols; i += blockDim.x) {
    args.dx[first + i] = inv_std * (gradient(i) - average - standard(i) * slope);
  }
}

extern "C" __global__ void norm_scale_gradient_f32(spark::NormBackwardArgs args) {
  const int64_t j = blockIdx.x, per_row = args.cols / args.inner;
  float dscale = 0, dbias = 0;
  for (int64_t i = threadIdx.x; i < args.rows / args.groups * args.inner; i += blockDim.x) {
    const int64_t row = i / args.inner * args.groups + j / per_row;
    const int64_t at = row * args.cols + j % per_row * args.inner + i % args.inner;
    const float mean = args.centered ? args.mean[row] : 0;
    dscale += args.dy[at] * (args.x[at] - mean) * args.inv_std[row];
    dbias += args.dy[at];
  }
  dscale = spark::block_sum(dscale);
  dbias = spark::block_sum(dbias);
  if (threadIdx.x == 0 && args.dscale) args.dscale[j] = dscale;
  if (threadIdx.x == 0 && args.dbias) args.dbias[j] = dbias;
}

// Where inner is 1: the sums of a chunk of the rows, which are those of all groups behind each other, to
// dscale[chunk, col] and dbias[chunk, col]. Both may be null.
extern "C" __global__ void __launch_bounds__(spark::column_sums_block::kThreads)
    norm_columns_gradient_f32(spark::NormBackwardArgs args, float* dscale, float* dbias) {
  const int64_t cols = args.groups * args.cols;
  spark::column_sums<2>(
      args.rows / args.groups, cols,
      [&](int64_t col) {
        return [&args, cols, col, group = col / args.cols](int64_t i, float(&sums)[2]) {
          const int64_t at = i * cols + col, row = i * args.groups + group;
          const float dy = args.dy[at], mean = args.centered ? args.mean[row] : 0;
          sums[0] += dy * (args.x[at] - mean) * args.inv_std[row];
          sums[1] += dy;
        };
      },
      [&](int64_t at, const float(&sums)[2]) {
        if (dscale) dscale[at] = sums[0];
        if (dbias) dbias[at] = sums[1];
      });
}

extern "C" __global__ void batch_statistics_f32(spark::BatchStatisticsArgs args) {
  const spark::Channel channel{args.channels, args.positions};
  const int64_t count = args.batch * args.positions;
  const float mean = spark::sum_over(count, [&](int64_t i) { return args.x[channel.at(i)]; }) / count;
  const float squares = spark::sum_over(count, [&](int64_t i) {
    const float difference = args.x[channel.at(i)] - mean;
    return difference * difference;
  });
  if (threadIdx.x != 0) return;
  args.mean[blockIdx.x] = mean;
  args.variance[blockIdx.x] = squares / count;
}

extern "C" __global__ void batch_norm_f32(spark::BatchNormArgs args) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= args.batch * args.channels * args.positions) return;
  const int64_t c = at / args.positions % args.channels;
  float value =
      (args.x[at] - args.mean[c]) * ((args.scale ? args.scale[c] : 1) / sqrtf(args.variance[c] + args.eps));
  if (args.bias) value += args.bias[c];
  args.y[at] = value;
}

extern "C" __global__ void batch_norm_backward_f32(spark::BatchNormBackwardArgs args) {
  const spark::Channel channel{args.channels, args.positions};
  const int64_t c = blockIdx.x, count = args.batch * args.positions;
  const float mean = args.mean[c], inv_std = 1 / sqrtf(args.variance[c] + args.eps);
  const auto standard = [&](int64_t at) { return (args.x[at] - mean) * inv_std; };
  const float dbias = spark::sum_over(count, [&](int64_t i) { return args.dy[channel.at(i)]; });
  const float dscale =
      spark::sum_over(count, [&](int64_t i) { return args.dy[channel.at(i)] * standard(channel.at(i)); });
  if (threadIdx.x == 0 && args.dbias) args.dbias[c] = dbias;
  if (threadIdx.x == 0 && args.dscale) args.dscale[c] = dscale;
  if (!args.dx) return;
  const float first = args.training ? dbias / count : 0, second = args.training ? dscale / count : 0;
  const float factor = (args.scale ? args.scale[c] : 1) * inv_std;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const int64_t at = channel.at(i);
    args.dx[at] = factor * (args.dy[at] - first - standard(at) * second);
  }
}
