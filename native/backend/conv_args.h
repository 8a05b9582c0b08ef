// conv_args.h: convolutions. Part of the contract in backend.h.
#pragma once

#include <cstdint>

#include "backend/linear_args.h"

namespace spark {

// A convolution along one to three axes (depth, height, width), written as three: those in front are of size
// 1. G groups; C and O are multiples of G. Position p = q · stride + k · dilation − pad of the image belongs
// to position q of the output and to the tap k; outside of the image everything is 0, so the sizes of the
// output are free. A negative pad crops.
struct ConvShape {
  int64_t batch, groups, channels, filters;  // N, G, C, O
  int64_t image[3], kernel[3], out[3];       // each at least 1 but for image and out
  int64_t stride[3], dilation[3];            // at least 1
  int64_t pad[3];                            // at the beginning
};

// Compact images have their channels last, [N, image, C]. A plan lets small ones be so: those of few
// positions, and others whose channels fill vectors of kCompactUnit as well as their positions would.
constexpr int64_t kFewPositions = 64, kMostCompactPositions = 256, kCompactUnit = 16;

inline bool is_small_image(int64_t positions, int64_t channels) {
  if (positions <= kFewPositions || positions > kMostCompactPositions) return positions <= kFewPositions;
  const auto rounded_up = [](int64_t count) { return (count + kCompactUnit - 1) / kCompactUnit; };
  return channels * rounded_up(positions) >= positions * rounded_up(channels);
}

// Whether filters read one position of all channels.
inline bool is_pointwise(const ConvShape& shape) {
  bool fits = shape.groups == 1;
  for (int axis = 0; axis < 3; ++axis) {
    fits &= shape.kernel[axis] == 1 && shape.stride[axis] == 1 && shape.pad[axis] == 0 &&
            shape.out[axis] == shape.image[axis];
  }
  return fits;
}

// Whether the window is one of 3 x 3 or 5 x 5 neighbours along two axes, at every position or every second.
inline bool has_square_window(const ConvShape& shape) {
  const auto [depth, height, width] = shape.kernel;
  const bool flat = shape.image[0] == 1 && depth == 1 && shape.out[0] == 1 && shape.pad[0] == 0;
  return flat && height == width && (height == 3 || height == 5) && shape.stride[1] == shape.stride[2] &&
         shape.stride[1] <= 2 && shape.dilation[1] == 1 && shape.dilation[2] == 1;
}

// Whether each filter reads one channel, through such a window whose first column is in the image or beside
// it.
inline bool is_small_depthwise(const ConvShape& shape) {
  const bool single = shape.groups > 1 && shape.groups == shape.channels && shape.groups == shape.filters;
  return single && has_square_window(shape) && shape.pad[2] >= 0 && shape.pad[2] < shape.kernel[2] &&
         shape.image[2] > 0;
}

// With z[n, o, q] = Σ_{c, k} x[n, g·C/G + c, p(q, k)] W[o, c, k] + bias[o] and g = ⌊o / (O/G)⌋:
//   y = activation(z) + residual, or activation(z + residual) when it is `residual_first`.
struct ConvArgs {
  Weight weight;  // [O, C/G · taps]
  ConvShape shape;
  const float* x;         // [N, C, image]
  const float* bias;      // [O]; null: no bias
  const float* residual;  // [N, O, out]; null: none. May be y.
  bool residual_first;
  Activation activation;
  Compute compute;  // f32, bf16 or f16
  float* y;         // [N, O, out]
  // The weight as winograd_weight() transforms it, for kernels of 3 x 3 along two axes with
  // strides, dilations and groups of 1. Lets z be computed in tiles of 4 x 4, with other roundings. null: not
  // at hand.
  const float* winograd;
  // The number of tiles of an image from which on they are computed so.
  int64_t min_tiles;
  // The weight in the numbers of compute, bf16 or f16, the channels of each tap side by side: O lines of
  // [taps, channels_last_channels()], channels_last_depth() long, on a multiple of 16 bytes, with zeros
  // behind channels and taps. Read in the place of the elements of weight. CUDA only. null: not at hand.
  const uint16_t* channels_last;
  // Whether x, and y with the residual, is compact: of a convolution that takes_compact() and whose weight
  // has its elements, winograd or not.
  bool x_compact, y_compact;
  // x and y in the numbers of compute with their channels last, [N, image, C] and [N, out, O], on multiples
  // of 16 bytes, beside channels_last where the channels, or filters, of a group are a multiple of
  // kChannelUnit. null: not at hand, or not wanted. x is null where x_last is not, and y may be where y_last
  // is not.
  const uint16_t* x_last;
  uint16_t* y_last;
  // Whether channels_last is the weight of a convolution that takes_tiles(), transformed, with channels and
  // filters in multiples of kTileUnit.
  bool in_tiles;
};

// Channels of a group in 16 bits are padded to a multiple of this, 16 bytes.
constexpr int64_t kChannelUnit = 8;
inline int64_t channels_last_channels(const ConvShape& shape) {
  return (shape.channels / shape.groups + kChannelUnit - 1) / kChannelUnit * kChannelUnit;
}
inline int64_t channels_last_depth(const ConvShape& shape) {
  const int64_t depth = shape.kernel[0] * shape.kernel[1] * shape.kernel[2] * channels_last_channels(shape);
  return (depth + kDepthUnit - 1) / kDepthUnit * kDepthUnit;
}

// Whether a convolution on CUDA can be computed in tiles of 2 x 2 outputs, by Winograd's F(2 x 2, 3 x 3). Its
// weight is U = G g Gᵀ of each filter and channel, of 4 x 4 numbers, with the rows of G 1 0 0, ½ ½ ½, ½ -½ ½
// and 0 0 1, as [C/16, 16 numbers, O/2, 4 fours of channels, 2 filters, 4 channels].
constexpr int64_t kTileUnit = 16;  // of channels and filters
inline bool takes_tiles(const ConvShape& shape) {
  bool fits = shape.groups == 1 && shape.image[0] == 1 && shape.out[0] == 1 && shape.pad[0] == 0;
  for (int axis = 0; axis < 3; ++axis) {
    fits &= shape.kernel[axis] == (axis == 0 ? 1 : 3) && shape.stride[axis] == 1 && shape.dilation[axis] == 1;
  }
  return fits;
}

inline bool takes_compact(const ConvShape& shape, bool has_residual) {
  return shape.groups == 1 || (is_small_depthwise(shape) && !has_residual);
}

// dx[n, g·C/G + c, p] = Σ_{o of g, k, q with p(q, k) = p} dy[n, o, q] W[o, c, k]
// dweight[o, c, k] = Σ_{n, q} dy[n, o, q] x[n, g·C/G + c, p(q, k)]    dbias[o] = Σ_{n, q} dy[n, o, q]
struct ConvBackwardArgs {
  Weight weight;  // [O, C/G · taps]
  ConvShape shape;
  const float* x;   // [N, C, image]; null: no dweight
  const float* dy;  // [N, O, out]
  float* dx;        // [N, C, image]; null: not wanted
  float* dweight;   // [O, C/G · taps]; null: not wanted
  float* dbias;     // [O]; null: not wanted
  Compute compute;  // of dx and dweight: f32, bf16 or f16
};

// A transposed convolution, y = dx of conv_backward + bias[c], with x in the place of dy. `shape` is that of
// the convolution it transposes, from y to x: y has C channels and the sizes of the image, x has O and those
// of out.
struct ConvTransposeArgs {
  Weight weight;  // [O, C/G · taps]
  ConvShape shape;
  const float* x;     // [N, O, out]
  const float* bias;  // [C]; null: no bias
  float* y;           // [N, C, image]
  Compute compute;    // f32, bf16 or f16
};

// y = a depthwise convolution, of the shape `shape` with G = C = O, of
// activation(Σ_k pointwise[c, k] x[n, k, p] + pointwise_bias[c]).
struct PointwiseDepthwiseArgs {
  Weight pointwise;             // [C, K]
  const float* pointwise_bias;  // [C]; null: no bias
  Activation pointwise_activation;
  Weight weight;      // [C, taps]
  ConvShape shape;    // of the depthwise convolution
  const float* x;     // [N, K, image]
  const float* bias;  // [C]; null: no bias
  Activation activation;
  float* y;  // [N, C, out]
  bool x_compact, y_compact;
};

}  // namespace spark
