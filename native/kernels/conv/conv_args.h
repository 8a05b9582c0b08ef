// conv_args.h: the parameters of a convolution on the device; read by the kernels of this folder, filled by
// their launchers.
#pragma once

#include "backend/backend.h"
#include "kernels/conv/fast_divisor.h"

namespace spark {

// x and dy as in backend.h. `out` is y of conv_*, dx of conv_transposed_* and dweight of
// conv_weight_gradient; bias has an element for each channel of `out`. No extent of an axis, no image and no
// count of positions or of channels and taps is 2^30 or more.
struct ConvPassArgs {
  ConvShape shape;
  FastAxes kernel, image, out_axes, stride;  // sizes of the shape
  Weight w;
  const float* x;
  const float* dy;
  const float* bias;
  const float* residual;
  bool residual_first;
  Activation activation;
  float* out;
};

// The same on tensor cores. Sums of line m are multiplied by line_scale[m] · tensor_scale, and what is
// gathered for a filter by k_scale of it before it is rounded; null: 1.
struct ConvMmaArgs {
  ConvPassArgs pass;        // without w
  const uint16_t* left;     // [groups · lines, padded_depth(depth)]
  const float* line_scale;  // [O]
  const float* k_scale;     // [O]
  float tensor_scale;
};

// Gradient of the weight, whose sums run over the positions of all images. These are cut into `spans` of
// `span`, from position `first` on, and the sums of the i-th are the i-th dweight from pass.out on.
struct ConvGradientArgs {
  ConvPassArgs pass;  // without w
  int32_t first, span, spans;
  const uint16_t* left;  // dy, packed, from position 0 on; tensor cores only
};

// out[i, o, k] = dy of filter o at position i · span + k of all images, 0 past the last one.
struct ConvGradientPackArgs {
  const float* dy;  // [N, O, positions]
  int32_t filters, depth, span, spans;
  FastDivisor positions;
  uint16_t* out;  // [spans, O, span] in bf16 or f16
};

// out[line, k] = the code of w that line `line` of all groups has at k, without row and tensor scales.
struct ConvPackArgs {
  Weight w;
  int32_t lines, depth;
  int32_t channels, filters;  // of a group
  FastDivisor taps;
  uint16_t* out;  // [lines, padded_depth(depth)] in bf16 or f16
};

// x for conv_channels_last.cu: out[n, p, g, c] = x[n, g, c, p], 0 for c from `channels` on.
struct ConvImageArgs {
  const float* x;                           // [N, G, channels, pixels]
  int32_t groups, channels, padded, count;  // count: N · pixels
  FastDivisor pixels;
  uint16_t* out;  // [N, pixels, G, padded] in bf16 or f16
};

// A convolution of such an image, to pass.out, where that is not null, and to `image_out`, likewise.
struct ConvChannelsLastArgs {
  ConvPassArgs pass;      // without w and x
  int32_t channels;       // of a group of `image`
  const uint16_t* image;  // [N, image, G, channels]
  const uint16_t* left;   // [O, padded_depth(taps · channels)]
  uint16_t* image_out;    // [N, out, O]; O/G is a multiple of kChannelUnit
};

// x for conv_integer.cu: out[n, p, g, c] = x[n, g, c, p], the zero point for c from `channels` on; behind it
// kByteChannelUnit zero points.
struct ConvBytesImageArgs {
  const uint8_t* x;                         // [N, G, channels, pixels]
  const int32_t* zero;                      // [1]; null: 0
  int32_t groups, channels, padded, count;  // count: N · pixels
  FastDivisor pixels;
  uint8_t* out;  // [N, pixels, G, padded]
};

// A convolution of bytes: of conv.x, or of such an image, two bytes of which count as one channel.
struct ConvIntegerPassArgs {
  ConvPassArgs pass;  // sizes alone
  ConvIntegerArgs conv;
  const uint16_t* image;    // [N, image, G, channels]
  const uint16_t* outside;  // [kByteChannelUnit / 2]
  int32_t channels;
};

}  // namespace spark
