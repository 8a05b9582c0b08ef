// conv_backward.cc: gradients of convolutions, and transposed convolutions.
#include <algorithm>

#include "backend/cpu/conv/conv_non_overlapping.h"
#include "backend/cpu/conv/conv_reading.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// The coefficients of a phase: to[g · C/G + c, o · taps + j] = W[g · O/G + o, c, taps[j]].
void transpose_weight(const ConvShape& shape, const float* weight, const std::vector<int64_t>& taps,
                      float* to) {
  const int64_t channels = shape.channels / shape.groups, filters = shape.filters / shape.groups;
  const int64_t all = numel(shape.kernel), some = static_cast<int64_t>(taps.size());
  parallel_for(shape.channels, grain_for(filters * some, 1 << 14), [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) {
      const int64_t group = channel / channels, c = channel % channels;
      float* row = to + channel * filters * some;
      for (int64_t o = 0; o < filters; ++o) {
        const float* from = weight + ((group * filters + o) * channels + c) * all;
        for (int64_t j = 0; j < some; ++j) *row++ = from[taps[j]];
      }
    }
  });
}

// Stores sums of a phase in an image, a line at a time.
void spread(const ConvShape& shape, const ConvPhase& phase, int64_t position, int64_t count,
            const float* sums, float bias, float* image) {
  const auto& [depth, height, width] = phase.size;
  while (count > 0) {
    const int64_t x = position % width, y = position / width % height, z = position / width / height;
    const int64_t run = std::min(count, width - x), step = shape.stride[2];
    const int64_t line =
        (phase.first[0] + z * shape.stride[0]) * shape.image[1] + phase.first[1] + y * shape.stride[1];
    float* to = image + line * shape.image[2] + phase.first[2] + x * step;
    for (int64_t i = 0; i < run; ++i) to[i * step] = sums[i] + bias;
    position += run;
    count -= run;
    sums += run;
  }
}

// dx = Σ dy · W + bias, for every channel.
void transposed(const Weight& weight, const ConvShape& shape, const float* dy, const float* bias, float* dx) {
  const int64_t pixels = numel(shape.image);
  if (shape.batch * shape.channels * pixels == 0) return;
  std::unique_ptr<float[]> values;
  const auto* w = static_cast<const float*>(decoded(weight, values).data);
  if (is_non_overlapping(shape)) return transposed_non_overlapping(w, shape, dy, bias, dx);
  const TransposedReading reading(shape);
  const std::unique_ptr<float[]> coefficients(new float[weight.rows * weight.cols]);
  const int64_t filters = shape.filters / shape.groups;
  std::vector<ConvPart> parts;
  float* next = coefficients.get();
  for (const ConvPhase& phase : reading.phases()) {
    const auto depth = filters * static_cast<int64_t>(phase.taps.size());
    transpose_weight(shape, w, phase.taps, next);
    ConvPart& part = parts.emplace_back();
    part.offsets = phase.offsets;
    std::copy_n(phase.size, 3, part.size);
    part.coefficients = {DType::kF32, shape.channels, depth, next, nullptr, nullptr, 0, false};
    part.store = [&, pixels](int64_t n, int64_t c, int64_t position, int64_t count, const float* sums) {
      spread(shape, phase, position, count, sums, bias ? bias[c] : 0.0f,
             dx + (n * shape.channels + c) * pixels);
    };
    next += shape.channels * depth;
  }
  convolve(reading.source(dy), parts);
}

void bias_gradient(const ConvBackwardArgs& args) {
  const int64_t positions = numel(args.shape.out), filters = args.shape.filters;
  parallel_for(filters, grain_for(args.shape.batch * positions, 1 << 16), [&](int64_t begin, int64_t end) {
    constexpr int64_t kLanes = 16;
    for (int64_t o = begin; o < end; ++o) {
      float total = 0;
      for (int64_t n = 0; n < args.shape.batch; ++n) {
        const float* plane = args.dy + (n * filters + o) * positions;
        float lanes[kLanes] = {}, sum = 0;
        int64_t q = 0;
        for (; q + kLanes <= positions; q += kLanes) {
          for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += plane[q + lane];
        }
        for (; q < positions; ++q) sum += plane[q];
        for (const float lane : lanes) sum += lane;
        total += sum;
      }
      args.dbias[o] = total;
    }
  });
}

}  // namespace

void conv_backward(const ConvBackwardArgs& args) {
  const ConvShape& shape = args.shape;
  if (args.dx) transposed(args.weight, shape, args.dy, nullptr, args.dx);
  if (args.dweight) {
    const ConvReading reading(shape);
    coefficient_gradient(reading.source(args.x), reading.taps(), shape.out, args.dy,
                         shape.filters / shape.groups, args.dweight);
  }
  if (args.dbias) bias_gradient(args);
}

void conv_transpose(const ConvTransposeArgs& args) {
  transposed(args.weight, args.shape, args.x, args.bias, args.y);
}

}  // namespace spark::cpu
