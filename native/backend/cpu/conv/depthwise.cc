// depthwise.cc: depthwise convolutions and their gradients.
#include "backend/cpu/conv/depthwise.h"

#include <algorithm>

#include "backend/cpu/conv/conv_reading.h"
#include "backend/cpu/gemm/activation.h"
#include "backend/cpu/parallel_tasks.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrainTerms = 1 << 17;  // products worth waking a thread for
constexpr int64_t kResults = 160;         // that are transposed together
constexpr int64_t kFewLinesOfTask = 8;
constexpr int64_t kMaxKernel = 5;
constexpr int64_t kAlignment = 16;  // floats that begin where the longest vectors do

DepthwisePlane plane_of(const ConvArgs& args, const float* weights, int64_t channel, int64_t plane) {
  const ConvShape& shape = args.shape;
  const int64_t o = plane % shape.filters;
  return {weights + o * numel(shape.kernel), args.bias ? args.bias[o] : 0,
          bounds_of(args.activation),        shape.stride[1],
          {shape.pad[1], shape.pad[2]},      {shape.image[1], shape.image[2]},
          {shape.out[1], shape.out[2]},      args.x + channel * numel(shape.image),
          args.y + plane * numel(shape.out)};
}

void by_planes(const ConvArgs& args, const float* weights) {
  const ConvShape& shape = args.shape;
  const int64_t filters = shape.filters, each = filters / shape.groups, positions = numel(shape.out);
  const ConvKernels& best = kernels().conv;
  const int64_t grain = 1 + kGrainTerms / (positions * numel(shape.kernel));
  parallel_for(shape.batch * filters, grain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t channel = index / filters * shape.groups + index % filters / each;
      const DepthwisePlane plane = plane_of(args, weights, channel, index);
      best.depthwise(shape.kernel[1], plane);
      if (!is_bounds(args.activation)) activate(args.activation, positions, plane.y);
    }
  });
}

int64_t rounded_up(int64_t count, int64_t size) { return (count + size - 1) / size * size; }

float* aligned(float* workspace) {
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  return workspace + rounded_up(address, kAlignment * sizeof(float)) / sizeof(float) -
         address / sizeof(float);
}

// Whether a channel in each lane is faster than a line in each vector.
bool prefers_lanes(const ConvShape& shape) {
  const int64_t width = kernels().conv.width, kernel = shape.kernel[2];
  const int64_t across = shape.out[2];
  if (width > 8 && 5 * across >= 4 * rounded_up(across, width)) return false;  // lines fill vectors
  const int64_t widest = width > 8 && kernel == 3 ? 24 : 64;
  return width > 4 && shape.filters == shape.groups && shape.filters >= width && across <= widest &&
         shape.image[2] > 0 && shape.pad[2] >= 0 && shape.pad[2] < kernel;
}

DepthwiseLanes dot_groups_of(const ConvShape& shape) {
  const int64_t width = kernels().conv.width, across = shape.out[2];
  DepthwiseLanes lanes{};
  lanes.held = shape.kernel[1] + 1 + (width - 2) / shape.image[2];
  lanes.pitch = std::max(shape.pad[2] + shape.image[2], (across - 1) * shape.stride[2] + shape.kernel[2]);
  lanes.results = rounded_up(std::max<int64_t>(kResults / across, 1) * across, width);
  return lanes;
}

// Lines of results that a task computes: all of them, unless threads would be left without a task.
int64_t lines_of_task(int64_t lines, int64_t tasks) {
  const int64_t threads = thread_count(), wanted = threads == 1 ? 1 : 4 * threads / tasks;
  const int64_t bands = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(lines / kFewLinesOfTask, 1));
  return (lines + bands - 1) / bands;
}

// Lines [line, line + count) of the results.
void activate_lanes(Activation activation, const DepthwiseLanes& of, int64_t line, int64_t count) {
  const auto [height, across] = of.plane.out;
  if (of.y_stride > 0) {
    for (int64_t i = line * across; i < (line + count) * across; ++i) {
      activate(activation, of.channels, of.plane.y + i * of.y_stride);
    }
    return;
  }
  for (int64_t c = 0; c < of.channels; ++c) {
    activate(activation, count * across, of.plane.y + (c * height + line) * across);
  }
}

void by_lanes(const ConvArgs& args, const float* weights) {
  const ConvShape& shape = args.shape;
  const ConvKernels& best = kernels().conv;
  const int64_t width = best.width, channels = shape.channels, height = shape.out[1];
  const int64_t groups = (channels + width - 1) / width, images = shape.batch * groups;
  const int64_t lines = lines_of_task(height, images), bands = (height + lines - 1) / lines;
  const DepthwiseLanes all = dot_groups_of(shape);
  const int64_t floats = all.vectors() * width;
  const auto compute = [&](int64_t task, float* workspace) {
    const int64_t image = task / bands, group = image % groups * width, line = task % bands * lines;
    const int64_t first = image / groups * channels + group, count = std::min(lines, height - line);
    DepthwiseLanes of = all;
    of.channels = std::min(width, channels - group);
    of.plane = plane_of(args, weights, first, first);
    of.bias = args.bias ? args.bias + group : nullptr;
    if (args.x_compact) {
      of.x_stride = channels;
      of.plane.x = args.x + image / groups * channels * numel(shape.image) + group;
    }
    if (args.y_compact) {
      of.y_stride = channels;
      of.plane.y = args.y + image / groups * channels * numel(shape.out) + group;
    }
    best.depthwise_lanes(shape.kernel[1], of, line, count, aligned(workspace));
    if (!is_bounds(args.activation)) activate_lanes(args.activation, of, line, count);
  };
  if (images * width * numel(shape.out) * numel(shape.kernel) < kGrainTerms) {
    const Scratch workspace(floats + kAlignment);
    for (int64_t task = 0; task < images * bands; ++task) compute(task, workspace.data());
  } else {
    parallel_tasks(images * bands, floats + kAlignment, compute);
  }
}

// Some channels of a line of results of a compact image.
void compute_line(const ConvArgs& args, const DepthwiseCompact& of, int64_t image, int64_t line) {
  const ConvShape& shape = args.shape;
  const ConvKernels& best = kernels().conv;
  const int64_t kernel = shape.kernel[1], stride = shape.stride[1], channels = shape.channels;
  const float* x = args.x + image * numel(shape.image) * channels;
  float* y = args.y + (image * numel(shape.out) + line * shape.out[2]) * channels;
  const float* lines[kMaxKernel];
  for (int64_t i = 0; i < kernel; ++i) {
    const int64_t from = line * stride + i - shape.pad[1];
    const bool inside = from >= 0 && from < shape.image[1];
    lines[i] = inside ? x + from * shape.image[2] * channels : nullptr;
  }
  best.depthwise_compact(kernel, stride, of, lines, y);
  if (is_bounds(args.activation)) return;
  const int64_t first = of.first * best.width, end = std::min(of.end * best.width, channels);
  for (int64_t i = 0; i < shape.out[2]; ++i) activate(args.activation, end - first, y + i * channels + first);
}

// Lines of results of compact images, in pieces of their channels where there are few of them.
void by_lines(const ConvArgs& args, const float* weights) {
  const ConvShape& shape = args.shape;
  const ConvKernels& best = kernels().conv;
  const int64_t kernel = shape.kernel[1], channels = shape.channels, height = shape.out[1];
  const int64_t groups = (channels + best.width - 1) / best.width, lines = shape.batch * height;
  const int64_t pitch = rounded_up(kernel * kernel, best.width) * best.width;
  const Scratch workspace(groups * pitch + channels + kAlignment);
  float* of_groups = aligned(workspace.data());
  float* zeros = of_groups + groups * pitch;
  best.depthwise_groups(kernel, weights, channels, pitch, of_groups);
  std::fill_n(zeros, channels, 0.0f);
  const DepthwiseCompact all{of_groups,   pitch, args.bias, zeros,        bounds_of(args.activation),
                             channels,    0,     groups,    shape.pad[2], shape.image[2],
                             shape.out[2]};
  const int64_t steps = std::max<int64_t>(groups - 1, 1);  // the last two groups may overlap
  const int64_t pieces = std::clamp<int64_t>((4 * thread_count() + lines - 1) / lines, 1, steps);
  const int64_t terms = shape.out[2] * channels * kernel * kernel / pieces;
  parallel_for(lines * pieces, 1 + kGrainTerms / (1 + terms), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t line = task / pieces, piece = task % pieces, image = line / height;
      DepthwiseCompact of = all;
      of.first = piece * steps / pieces;
      of.end = piece + 1 == pieces ? groups : (piece + 1) * steps / pieces;
      compute_line(args, of, image, line % height);
    }
  });
}

}  // namespace

bool is_depthwise(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  const bool single =
      shape.groups == shape.channels && loops_over(shape.groups, shape.filters / shape.groups);
  return has_square_window(shape) && single && !args.residual;
}

void depthwise_conv(const ConvArgs& args) {
  std::unique_ptr<float[]> storage;
  const auto* weights = static_cast<const float*>(decoded(args.weight, storage).data);
  if (args.x_compact && args.y_compact && args.shape.channels >= kernels().conv.width) {
    return by_lines(args, weights);
  }
  const bool lanes = args.x_compact || args.y_compact || prefers_lanes(args.shape);
  lanes ? by_lanes(args, weights) : by_planes(args, weights);
}

}  // namespace spark::cpu
