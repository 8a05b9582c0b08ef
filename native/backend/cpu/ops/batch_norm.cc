// batch_norm.cc: batch statistics, batch normalization and its gradient.
#include <cmath>

#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// body(c) for each channel.
template <typename Body>
void for_each_channel(int64_t channels, int64_t elements, const Body& body) {
  parallel_for(channels, grain_for(elements, 1 << 12), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) body(c);
  });
}

}  // namespace

void batch_statistics(const BatchStatisticsArgs& args) {
  const RowKernels& loops = kernels().rows;
  const int64_t positions = args.positions, count = args.batch * positions;
  for_each_channel(args.channels, count, [&](int64_t c) {
    const auto plane = [&](int64_t n) { return args.x + (n * args.channels + c) * positions; };
    double sum = 0, squares = 0;
    for (int64_t n = 0; n < args.batch; ++n) sum += loops.sum(plane(n), positions);
    const auto mean = static_cast<float>(sum / count);
    for (int64_t n = 0; n < args.batch; ++n) squares += loops.square_sum(plane(n), positions, mean);
    args.mean[c] = mean;
    args.variance[c] = static_cast<float>(squares / count);
  });
}

void batch_norm(const BatchNormArgs& args) {
  const RowKernels& loops = kernels().rows;
  const int64_t positions = args.positions;
  for_each_channel(args.batch * args.channels, positions, [&](int64_t plane) {
    const int64_t c = plane % args.channels;
    const float factor = (args.scale ? args.scale[c] : 1) / std::sqrt(args.variance[c] + args.eps);
    float* y = args.y + plane * positions;
    loops.normalize(args.x + plane * positions, positions, args.mean[c], factor, nullptr, nullptr, y);
    if (args.bias) loops.affine(y, positions, 1, args.bias[c], y);
  });
}

void batch_norm_backward(const BatchNormBackwardArgs& args) {
  const RowKernels& loops = kernels().rows;
  const int64_t positions = args.positions;
  const auto count = static_cast<float>(args.batch * positions);
  for_each_channel(args.channels, args.batch * positions, [&](int64_t c) {
    const float mean = args.mean[c], inv_std = 1 / std::sqrt(args.variance[c] + args.eps);
    double dbias = 0, dscale = 0;
    for (int64_t n = 0; n < args.batch; ++n) {
      const int64_t at = (n * args.channels + c) * positions;
      float sums[2];
      loops.gradient_sums(args.dy + at, nullptr, args.x + at, mean, positions, sums);
      dbias += sums[0];
      dscale += sums[1] * double{inv_std};
    }
    if (args.dbias) args.dbias[c] = static_cast<float>(dbias);
    if (args.dscale) args.dscale[c] = static_cast<float>(dscale);
    if (!args.dx) return;
    const float first = args.training ? static_cast<float>(dbias) / count : 0;
    const float second = args.training ? static_cast<float>(dscale) * inv_std / count : 0;
    const float factor = (args.scale ? args.scale[c] : 1) * inv_std;
    for (int64_t n = 0; n < args.batch; ++n) {
      const int64_t at = (n * args.channels + c) * positions;
      loops.normalize_backward(args.dy + at, nullptr, args.x + at, mean, positions, factor, first, second,
                               args.dx + at);
    }
  });
}

}  // namespace spark::cpu
