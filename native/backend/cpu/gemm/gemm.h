// gemm.h: what the matrix product needs from an instruction set (core/cpu_isa.h): decode, pack, multiply.
#pragma once

#include "backend/cpu/gemm/finish.h"
#include "backend/cpu/gemm/operand.h"

namespace spark::cpu {

constexpr int64_t kChunk = 256;         // length of K over which a sum is one chain of additions
constexpr int64_t kLine = kChunk + 16;  // a power of two would put all lines into the same cache sets
constexpr int64_t kSliver = 32;         // lines of the right side in a packed sliver, which fills half of L1
constexpr int64_t kFewRows = 4;         // up to so many rows do without packing the right side
constexpr int64_t kFewLines = 64;       // lines that few rows are multiplied by at once, when they are packed
static_assert(kSliver == kPanelRows);
constexpr int64_t kVector = 16;  // floats of a line of the cache, and of the longest vectors
constexpr int64_t kTile = 256;   // rows and columns of a tile at most

// Values of the element of NVFP4.
constexpr float kE2M1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// A tile of a weight W and of B·A, rank by rank.
struct LowRankTile {
  int64_t rows, cols, rank;  // rows <= kPanelRows
  const float* weight;       // [rows, kLine]; as many as 16 floats behind a row are read
  const float* b;            // [rows, rank], scaled
  const float* a;            // [rank, a_stride]; as weight
  int64_t a_stride;
  const float* gain;  // [rows]; null: 1
  float* to;          // [rows, to_stride]
  int64_t to_stride;
  const char* next;   // what is read for the next tile and can be asked for now, `next_bits` for each element
  int64_t next_bits;  // 0: nothing
  bool past_cache;    // rows of `to` begin at multiples of 64 bytes and will not be read from a cache
};

// The left side of a product along a chunk of K. Element (i, k) is data[i * kLine + k], or, where `panel` is
// not 0, data[i / kPanelRows * panel + k * kPanelRows + i % kPanelRows]: in panels of a weight, so far apart.
struct Left {
  const float* data;
  int64_t panel;
};

// A convolution of one channel with K x K taps and zeros around its image: tap (i, j) of result (y, x) reads
// image[y · stride + i − pad[0], x · stride + j − pad[1]].
struct DepthwisePlane {
  const float* weights;  // [K, K]
  float bias;
  bool relu;         // what is below 0 becomes 0
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
  int64_t channels;      // at most Gemm::width
  int64_t held;          // lines: K + 1 + (width − 2) / plane.image[1] at least
  int64_t pitch;    // columns: plane.pad[1] + plane.image[1] and (plane.out[1] − 1) · stride + K at least
  int64_t results;  // that are computed before they are stored: a line at least, and a multiple of width

  int64_t vectors() const { return results + (held + 1) * pitch; }
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

struct Gemm {
  int64_t width;  // floats of a vector
  // to[i * kLine + j] = from(line + i, k + j) for i < lines <= kTile, j < count <= kChunk. Where the lines
  // are rows of a weight, k is a multiple of 16, line of kPanelRows if it is packed; its columns are no left
  // side.
  void (*pack_rows)(const Operand& from, int64_t line, int64_t lines, int64_t k, int64_t count, float* to);
  // to[j * kSliver + i] = from(line + i, k + j) for i < lines <= kSliver, j < count <= kChunk, which is
  // rounded up to an even number for packed bf16. to: kSliver * kLine floats.
  void (*pack_sliver)(const Operand& from, int64_t line, int64_t lines, int64_t k, int64_t count, float* to);
  // from(line + i, k + j) as a left side, of which `to` has kTile * kLine floats: rows of a packed weight in
  // their panels, packed f32 where it is, all others as pack_rows does.
  Left (*pack_left)(const Operand& from, int64_t line, int64_t lines, int64_t k, int64_t count, float* to);
  // sums[i * kTile + j] += Σ left(i, k') · b(line + j, k + k') for i < m <= kTile, j < lines <= kSliver
  // (kFewLines for m <= kFewRows and packed rows) and k' < count <= kChunk: one chain of multiplications and
  // additions (fused, but for `plain`) with rising k' that starts at 0. The rest of the kSliver columns holds
  // anything afterwards. buffer: kSliver * kLine floats.
  void (*multiply)(const Left& left, int64_t m, const Operand& b, int64_t line, int64_t lines, int64_t k,
                   int64_t count, float* buffer, float* sums);
  // As multiply with the last chunk of sums, which begin with `sums` (null: with 0), are left as they are and
  // become what `to` says. Activations but kNone and kRelu are left out.
  void (*finish)(const Left& left, int64_t m, const Operand& b, int64_t line, int64_t lines, int64_t k,
                 int64_t count, float* buffer, const float* sums, const Finish& to);
  // Rows of finished sums, `pitch` elements apart, become what `to` says, with these activations alone.
  void (*settle)(const float* sums, int64_t pitch, int64_t rows, int64_t cols, const Finish& to);
  // sums[i] = Σ coefficients[k] · data[offset[k] + i] for i < count and k < depth, a chain as in multiply,
  // + bias, and what is below 0 becomes 0 if `relu`. Reads and writes up to 15 elements more.
  void (*correlate)(const float* coefficients, const float* data, const int64_t* offset, int64_t depth,
                    int64_t count, float bias, bool relu, float* sums);
  // Each result is a chain over the taps in their order, as in multiply, + bias. K is 3 or 5.
  void (*depthwise)(int64_t kernel, const DepthwisePlane& plane);
  // The same results, lines [first, first + count) of them. room: of.vectors() vectors, at a multiple of 64
  // bytes.
  void (*depthwise_lanes)(int64_t kernel, const DepthwiseLanes& of, int64_t first, int64_t count,
                          float* room);
  // y = the largest elements of the windows on so many planes: −∞ where one covers nothing, NaN where it
  // covers one. columns: 8 · pitch times −∞, some of which are written over; pitch: at least (out[2] + 16) ·
  // stride[2]
  // + (kernel[2] − 1) · dilation[2] + 32.
  void (*largest)(const Windows& windows, int64_t planes, const float* x, float* columns, int64_t pitch,
                  float* y);
  // sums[i] += x[i · stride] for i < count
  void (*add_apart)(const float* x, int64_t stride, int64_t count, double* sums);
  // y[i] = sums[i] / (factor · counts[i]) for i < count
  void (*divide)(const double* sums, const double* counts, double factor, int64_t count, float* y);
  // Line i < lines of `to`, which has `length` elements: those from `begin` to `end` are from[i · pitch + j ·
  // stride] with j rising from 0, the others `padding`.
  void (*stage)(const float* from, int64_t pitch, int64_t stride, int64_t lines, int64_t begin, int64_t end,
                int64_t length, float padding, float* to);
  // Bᵀ · tile · B of Winograd's F(4 x 4, 3 x 3): element p of tile t is to[p · stride + t / kSliver · panel +
  // t % kSliver], up to 15 tiles more are written. room: 12 · plane.pitch floats.
  void (*winograd_input)(const WinogradPlane& plane, float* room, float* to, int64_t stride, int64_t panel);
  // Four lines of results, `pitch` elements apart, from tiles that follow each other: Aᵀ · tile · A + bias,
  // element p of tile t being from[p · stride + t]. Reads and writes up to 15 tiles more.
  void (*winograd_output)(const float* from, int64_t stride, int64_t count, float bias, int64_t pitch,
                          float* to);
  // sums[k] += Σ gradient[y · width + x] · data[offset[k] + y · pitch + x] for y < height, x < width and k <
  // depth: sixteen chains, one for each x modulo 16, that are added in their order. Reads up to 15 elements
  // of data more.
  void (*dots)(const float* gradient, int64_t height, int64_t width, const float* data, int64_t pitch,
               const int64_t* offset, int64_t depth, float* sums);
  // to = gain ∘ (W + B·A), the sums of B·A as those of multiply.
  void (*add_low_rank)(const LowRankTile& tile);
};

extern const Gemm plain_gemm, avx2_gemm, avx512_gemm, neon_gemm;

// That of cpu_isa().
const Gemm& gemm();

}  // namespace spark::cpu
