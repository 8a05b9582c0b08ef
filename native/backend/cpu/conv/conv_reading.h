// conv_reading.h: the geometry by which the passes of a convolution read their source.
#pragma once

#include "backend/cpu/conv/conv_passes.h"

namespace spark::cpu {

// x, as the forward pass and the gradient of the weight read it.
class ConvReading {
 public:
  explicit ConvReading(const ConvShape& shape);

  const PaddedInput& input() const { return *input_; }
  const std::vector<int64_t>& taps() const { return taps_; }
  ConvSource source(const float* x) const;

 private:
  const ConvShape& shape_;
  std::unique_ptr<PaddedInput> input_;
  std::vector<int64_t> taps_;
};

// The positions of the image that are equal modulo the strides: all meet the same taps.
struct ConvPhase {
  int64_t first[3], size[3];     // of the positions
  std::vector<int64_t> taps;     // indices
  std::vector<int64_t> offsets;  // where they lie in the padded input
};

// dy, as the gradient of x reads it.
class TransposedReading {
 public:
  explicit TransposedReading(const ConvShape& shape);

  const std::vector<ConvPhase>& phases() const { return phases_; }
  ConvSource source(const float* dy) const;

 private:
  const ConvShape& shape_;
  std::unique_ptr<PaddedInput> input_;
  std::vector<ConvPhase> phases_;
};

// `weight` itself, or its values, which are put into `storage`.
Weight decoded(const Weight& weight, std::unique_ptr<float[]>& storage);

}  // namespace spark::cpu
