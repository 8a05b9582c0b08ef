// conv_reading.cc: geometry of convolutions and transposed convolutions: taps, phases, padded axes.
#include "backend/cpu/conv/conv_reading.h"

#include <algorithm>

#include "backend/cpu/gemm/weight.h"
#include "backend/cpu/grain.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// A residue of the positions of the image along an axis.
struct AxisPhase {
  int64_t size = 0;
  std::vector<int64_t> taps;
  std::vector<PaddedTap> padded_taps;
};

// q = (p + pad − k · dilation) / stride belongs to p where it is a whole number.
std::vector<AxisPhase> axis_phases(const ConvShape& shape, int i, PaddedAxis& axis) {
  const int64_t stride = shape.stride[i], image = shape.image[i];
  std::vector<AxisPhase> phases(std::min(stride, image));
  int64_t lowest = 0, highest = -1;
  for (int64_t p = 0; p < static_cast<int64_t>(phases.size()); ++p) {
    AxisPhase& phase = phases[p];
    phase.size = (image - p + stride - 1) / stride;
    for (int64_t k = 0; k < shape.kernel[i]; ++k) {
      const int64_t distance = p + shape.pad[i] - k * shape.dilation[i];
      if (distance % stride != 0) continue;
      const int64_t q = distance / stride;
      const bool first = highest < lowest;
      lowest = first ? q : std::min(lowest, q);
      highest = first ? q + phase.size - 1 : std::max(highest, q + phase.size - 1);
      phase.taps.push_back(k);
      phase.padded_taps.push_back({0, q});
    }
  }
  for (AxisPhase& phase : phases) {
    for (PaddedTap& tap : phase.padded_taps) tap.shift -= lowest;
  }
  axis = {shape.out[i], 1, lowest, {0}, highest - lowest + 1};
  return phases;
}

// Indices of the taps of a phase in the kernel.
std::vector<int64_t> tap_indices(const ConvShape& shape, const AxisPhase& z, const AxisPhase& y,
                                 const AxisPhase& x) {
  std::vector<int64_t> taps;
  for (const int64_t at_z : z.taps) {
    for (const int64_t at_y : y.taps) {
      for (const int64_t at_x : x.taps)
        taps.push_back((at_z * shape.kernel[1] + at_y) * shape.kernel[2] + at_x);
    }
  }
  return taps;
}

}  // namespace

ConvReading::ConvReading(const ConvShape& shape) : shape_(shape) {
  PaddedAxis axes[3];
  std::array<std::vector<PaddedTap>, 3> taps;
  for (int i = 0; i < 3; ++i) {
    const int64_t stride = shape.stride[i], dilation = shape.dilation[i];
    PaddedAxis& axis = axes[i] = {shape.image[i], stride, -shape.pad[i], {}, 0};
    std::vector<int64_t>& remainders = axis.remainders;
    for (int64_t k = 0; k < shape.kernel[i]; ++k) remainders.push_back(k * dilation % stride);
    std::sort(remainders.begin(), remainders.end());
    remainders.erase(std::unique(remainders.begin(), remainders.end()), remainders.end());
    for (int64_t k = 0; k < shape.kernel[i]; ++k) {
      const auto found = std::lower_bound(remainders.begin(), remainders.end(), k * dilation % stride);
      taps[i].push_back({found - remainders.begin(), k * dilation / stride});
    }
    axis.length = shape.out[i] + taps[i].back().shift;
  }
  input_ = std::make_unique<PaddedInput>(axes);
  taps_ = input_->offsets(taps);
}

ConvSource ConvReading::source(const float* x) const {
  return {x, shape_.batch, shape_.groups, shape_.channels / shape_.groups, numel(shape_.image), input_.get()};
}

TransposedReading::TransposedReading(const ConvShape& shape) : shape_(shape) {
  PaddedAxis axes[3];
  std::vector<AxisPhase> along[3];
  for (int i = 0; i < 3; ++i) along[i] = axis_phases(shape, i, axes[i]);
  input_ = std::make_unique<PaddedInput>(axes);
  for (size_t z = 0; z < along[0].size(); ++z) {
    for (size_t y = 0; y < along[1].size(); ++y) {
      for (size_t x = 0; x < along[2].size(); ++x) {
        const AxisPhase &of_z = along[0][z], &of_y = along[1][y], &of_x = along[2][x];
        phases_.push_back({{static_cast<int64_t>(z), static_cast<int64_t>(y), static_cast<int64_t>(x)},
                           {of_z.size, of_y.size, of_x.size},
                           tap_indices(shape, of_z, of_y, of_x),
                           input_->offsets({of_z.padded_taps, of_y.padded_taps, of_x.padded_taps})});
      }
    }
  }
}

ConvSource TransposedReading::source(const float* dy) const {
  return {dy, shape_.batch, shape_.groups, shape_.filters / shape_.groups, numel(shape_.out), input_.get()};
}

Weight decoded(const Weight& weight, std::unique_ptr<float[]>& storage) {
  if (weight.dtype == DType::kF32 && !weight.packed) return weight;
  const int64_t rows = weight.rows, cols = weight.cols;
  storage.reset(new float[rows * cols]);
  const int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
  parallel_for(panels, grain_for(kPanelRows * cols, 1 << 14), [&](int64_t begin, int64_t end) {
    float piece[kPanelRows * kLine];
    for (int64_t row = begin * kPanelRows; row < std::min(rows, end * kPanelRows); row += kPanelRows) {
      const int64_t some = std::min(kPanelRows, rows - row);
      for (int64_t col = 0; col < cols; col += kChunk) {
        const int64_t count = std::min(kChunk, cols - col);
        decode(weight, row, some, col, count, piece);
        for (int64_t i = 0; i < some; ++i) {
          std::copy_n(piece + i * kLine, count, storage.get() + (row + i) * cols + col);
        }
      }
    }
  });
  return {DType::kF32, rows, cols, storage.get(), nullptr, nullptr, 0, false};
}

}  // namespace spark::cpu
