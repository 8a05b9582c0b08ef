// layer_args.h: pooling, resizing, dropout and recurrent layers. Part of the contract in backend.h.
#pragma once

#include <cstdint>

#include "backend/strided_args.h"
#include "core/float_formats.h"

namespace spark {

enum class PoolFn : uint8_t { kMax, kAverage };

// Windows that move over planes along one to three axes, written as three: those in front are of size 1. Tap
// k of the window at q lies on position p = q · stride + k · dilation − pad; only positions inside of the
// image count.
struct Windows {
  int64_t planes;
  int64_t image[3], kernel[3], out[3];  // each at least 1 but for image and out
  int64_t stride[3], dilation[3];       // at least 1
  int64_t pad[3], pad_end[3];           // at the beginning and at the end, not negative
};

// y[n, q] = the largest x[n, p], −∞ where there is none, or the mean: the sum, in f64, divided by the number
// of taps inside of the image or, with count_pad, of the image and its pads. dtypes: f32; max without indices
// also u8 and i8, whose −∞ is their smallest number.
struct PoolArgs {
  PoolFn fn;
  DType dtype;
  Windows windows;
  bool count_pad;
  const void* x;     // [planes, image]
  void* y;           // [planes, out]
  int64_t* indices;  // [planes, out]: where in x the first largest element is; null: not wanted
  int64_t channels;  // of images whose channels come last, where x is_small_image (conv_args.h): x is [N,
                     // image, channels], y [N, out, channels]; 0: planes
};

// dx[n, p] = Σ of dy[n, q] over the windows whose largest element is the first at p, or of dy[n, q] / divisor
// over those that p lies in. dtypes: f32.
struct PoolBackwardArgs {
  PoolFn fn;
  DType dtype;
  Windows windows;
  bool count_pad;
  const void* x;   // [planes, image]; max only
  const void* dy;  // [planes, out]
  void* dx;        // [planes, image]
};

// y[o, q, i] = offset[q] + Σ_t weights[q, t] · x[o, taps[q, t], i] for x[outer, size, inner] and
// y[outer, out, inner], taps being in [0, size), others being ERR_ARGUMENT or, on
// CUDA, no part of the sum: one axis of a resized image.
struct ResampleArgs {
  int64_t outer, size, inner, out, count;  // count: taps of a position
  const float* x;
  const int32_t* taps;   // [out, count]
  const float* weights;  // [out, count]
  const float* offset;   // [out]; null: 0
  float* y;
};

// mask[i] = 0 where the word of i is below `threshold`, else `keep`. The words of i = 4b .. 4b + 3 are those
// of Philox4x32-10 (backend/philox.h) with the counter (b mod 2^32, ⌊b / 2^32⌋, state[1], state[2]) and the
// key (state[0], stream): the same bits on every backend.
struct DropoutMaskArgs {
  int64_t count;
  uint64_t threshold;     // p · 2^32 for the probability p of a 0
  float keep;             // 1 / (1 − p); 0 for p = 1
  uint32_t stream;        // which mask of a step it is
  const uint32_t* state;  // [3]: seed, step, part of the step
  float* mask;            // [count]
};

enum class Interpolation : uint8_t { kNearest, kLinear, kCubic };
enum class OutOfImage : uint8_t { kZeros, kBorder, kReflection };

// y[n, c, q] = image x[n, c] at grid[n, q], interpolated. A grid point has a coordinate in [−1, 1] for each
// of `axes` (2 or 3) axes, the last axis first; −1 and 1 are the centers of the outermost elements if
// align_corners, else their outer edges. Cubic: Keys with a = −0.75, for two axes. kReflection mirrors at the
// same places.
struct GridSampleArgs {
  Interpolation interpolation;
  OutOfImage out_of_image;
  bool align_corners;
  int64_t batch, channels, axes, points;
  int64_t image[3];   // in front of two axes there is a third of size 1
  const float* x;     // [batch, channels, image]
  const float* grid;  // [batch, points, axes]
  float* y;           // [batch, channels, points]
};

// A plane of pixels in bytes: (row, column) is at offset + row · pitch + column · step. Sizes are at least 1.
struct PixelPlane {
  int64_t height, width, offset, pitch, step;
};

// Frames of a camera in YUV 4:2:0, seen through the projection M, whose points [column, row, 1] of the result
// M takes to those of the frame, and packed: with (r, q) in [out_height/2, out_width/2], channel 0 is the
// luma of the result at (2r, 2q), 1 that at (2r + 1, 2q), 2 at (2r, 2q + 1), 3 at (2r + 1, 2q + 1), 4 is U
// and 5 V at (r, q), where M is M ∘ [[1, 1, ½], [1, 1, ½], [2, 2, 1]]. A point takes the nearest pixel, in
// between the even one, and outside of the plane that at its border. Coordinates are f64.
struct WarpFramesArgs {
  int64_t frames, frame_bytes;
  PixelPlane planes[3];           // Y, U and V in a frame
  int64_t out_height, out_width;  // even
  double matrix[9];               // by rows
  const uint8_t* x;               // [frames, frame_bytes]
  uint8_t* y;                     // [frames, 6, out_height/2, out_width/2]
};

enum class RecurrentCell : uint8_t { kRnn, kGru, kLstm };

SPARK_HOST_DEVICE inline int64_t gate_count(RecurrentCell cell) {
  return cell == RecurrentCell::kRnn ? 1 : cell == RecurrentCell::kGru ? 3 : 4;
}

// A function of UnaryFn with its parameters.
struct Function {
  UnaryFn fn;
  double alpha, beta;
};

// How many functions a direction takes: f, g, h of ONNX.
SPARK_HOST_DEVICE inline int64_t function_count(RecurrentCell cell) {
  return cell == RecurrentCell::kRnn ? 1 : cell == RecurrentCell::kGru ? 2 : 3;
}

// A recurrent layer as ONNX defines it. `gates` is x · Wᵀ + bias, the gates in the order of ONNX: RNN i; GRU
// z, r, h; LSTM i, o, f, c. `bias` is added to h · Rᵀ; GRU needs it for the gate h where linear_before_reset.
struct RecurrentArgs {
  RecurrentCell cell;
  int64_t directions;  // 1, or 2, of which the second one goes backwards
  int64_t steps, batch, hidden;
  bool reverse, linear_before_reset, couple_gates;  // reverse: the first direction goes backwards
  double clip;                                      // of what functions take; infinite: none
  Function functions[6];                            // [directions, function_count(cell)]
  const float* gates;                               // [steps, batch, directions, gates · hidden]
  bool packed;                                      // R is; CPU only
  const float* recurrence;  // Rᵀ: [directions, hidden, gates · hidden]; packed: the
                            // panels of R of each direction (weight.h)
  const float* bias;        // [directions, gates · hidden]; null: 0
  const float* peepholes;   // LSTM: [directions, 3 · hidden] for i, o, f; null: 0
  const float* initial_h;   // [directions, batch, hidden]; null: 0
  const float* initial_c;   // LSTM: [directions, batch, hidden]; null: 0
  const int32_t* lengths;   // [batch], in [0, steps]; null: steps. y is 0 from there on
  float* y;                 // [steps, directions, batch, hidden]; null: not wanted
  float* last_h;            // [directions, batch, hidden]
  float* last_c;            // LSTM: [directions, batch, hidden]; null: other cells
  float* scratch;           // [directions, batch, (gates + 1) · hidden]
};

}  // namespace spark
