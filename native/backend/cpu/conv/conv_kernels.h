// conv_kernels.h: the convolutions' share of CpuKernels.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm/activation.h"

namespace spark::cpu {

// A convolution of one channel with K x K taps and zeros around its image: tap (i, j) of result (y, x) reads
// image[y · stride + i − pad[0], x · stride + j − pad[1]].
struct DepthwisePlane {
  const float* weights;  // [K, K]
  float bias;
  Bounds bounds;     // of the results
  int64_t stride;    // 1 or 2
  int64_t pad[2];    // any numbers
  int64_t image[2];  // height and width
  int64_t out[2];    // of the results
  const float* x;    // [image]
  float* y;          // [out]
};

// The same for channels that follow each other, one in each lane of a vector. Their lines of the image lie in
// a ring, transposed: [held, pitch, lane].
struct DepthwiseLanes {
  DepthwisePlane plane;  // of the first channel, but for its bias; pad[1] >= 0
  const float* bias;     // [channels]; null: none
  int64_t channels;      // at most ConvKernels::width
  int64_t held;          // lines: K + 1 + (width − 2) / plane.image[1] at least
  int64_t pitch;    // columns: plane.pad[1] + plane.image[1] and (plane.out[1] − 1) · stride + K at least
  int64_t results;  // that are computed before they are stored: a line at least, and a multiple of width
  // Between two positions of x and of y; 0: channels are planes that follow each other.
  int64_t x_stride, y_stride;

  int64_t vectors() const { return results + (held + 1) * pitch; }
};

// The same for lines of compact images: groups [first, end) of their channels. A group has a vector of them;
// the last one ends with the last channel, so two may overlap.
struct DepthwiseCompact {
  const float* weights;  // [groups, pitch], of depthwise_groups
  int64_t pitch;         // K * K rounded up to a multiple of ConvKernels::width, of vectors
  const float* bias;     // [channels]; null: none
  const float* zeros;    // [channels], around the image
  Bounds bounds;         // of the results
  int64_t channels;      // ConvKernels::width at least
  int64_t first, end;    // groups
  int64_t pad;           // columns in front of the image, any number
  int64_t image, out;    // columns of a line, and results
};

// Some lines of overlapping tiles of 6 x 6: element (i, j) of tile t, which is number x of line y, t = y ·
// across + x, is image[4 · y + i − pad[0], 4 · x + j − pad[1]], or 0 around the image.
struct WinogradPlane {
  const float* image;
  int64_t size[2];  // height and width of the image
  int64_t pad[2];   // any numbers
  int64_t lines, across;
  int64_t pitch;  // between transformed lines: 4 · lines · across + 96 at least
};

struct ConvKernels {
  int64_t width;  // floats of a vector
  // sums[i] = Σ coefficients[k] · data[offset[k] + i] for i < count and k < depth, a chain as in multiply,
  // + bias, within bounds. Reads and writes up to 15 elements more.
  void (*correlate)(const float* coefficients, const float* data, const int64_t* offset, int64_t depth,
                    int64_t count, float bias, Bounds bounds, float* sums);
  // Each result is a chain over the taps in their order, as in multiply, + bias. K is 3 or 5.
  void (*depthwise)(int64_t kernel, const DepthwisePlane& plane);
  // The same results, lines [first, first + count) of them. workspace: of.vectors() vectors, at a multiple of
  // 64 bytes.
  void (*depthwise_lanes)(int64_t kernel, const DepthwiseLanes& of, int64_t first, int64_t count,
                          float* workspace);
  // The weights [channels, K, K] of all groups of DepthwiseCompact.
  void (*depthwise_groups)(int64_t kernel, const float* weights, int64_t channels, int64_t pitch, float* to);
  // A line of the same results, [out, channels]; lines: the K lines of the image, [image, channels], that it
  // reads, null around the image.
  void (*depthwise_compact)(int64_t kernel, int64_t stride, const DepthwiseCompact& of,
                            const float* const* lines, float* y);
  // Line i < lines of `to`, which has `length` elements: those from `begin` to `end` are from[i · pitch + j ·
  // stride] with j rising from 0, the others `padding`.
  void (*pad_lines)(const float* from, int64_t pitch, int64_t stride, int64_t lines, int64_t begin,
                    int64_t end, int64_t length, float padding, float* to);
  // Bᵀ · tile · B of Winograd's F(4 x 4, 3 x 3): element p of tile t is to[p · stride + t / kPanelRows ·
  // panel + t % kPanelRows], up to 15 tiles more are written. workspace: 12 · plane.pitch floats.
  void (*winograd_input)(const WinogradPlane& plane, float* workspace, float* to, int64_t stride,
                         int64_t panel);
  // Four lines of results, `pitch` elements apart, from tiles that follow each other: Aᵀ · tile · A + bias,
  // element p of tile t being from[p · stride + t]. Reads and writes up to 15 tiles more.
  void (*winograd_output)(const float* from, int64_t stride, int64_t count, float bias, int64_t pitch,
                          float* to);
  // sums[k] += Σ gradient[y · width + x] · data[offset[k] + y · pitch + x] for y < height, x < width and k <
  // depth: sixteen chains, one for each x modulo 16, that are added in their order. Reads up to 15 elements
  // of data more.
  void (*dots)(const float* gradient, int64_t height, int64_t width, const float* data, int64_t pitch,
               const int64_t* offset, int64_t depth, float* sums);
};

}  // namespace spark::cpu
