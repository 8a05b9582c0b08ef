// conv_winograd.cu: forward convolutions of 3 x 3 by Winograd's F(2 x 2, 3 x 3) on tensor cores. Four outputs
// of a tile are Aᵀ (Σ_c U_c ∘ Bᵀ d_c B) A, where d is 4 x 4 pixels of the image that conv_image_<number>
// packs, and U = G g Gᵀ the weight as ConvArgs::in_tiles of backend.h has it: 16 positions of a tile, each of
// them a product along the channels. A block takes 8 x 4 tiles and 64 filters: the image goes to shared
// memory, is transformed in f32 and rounded once there, and a warp multiplies two of the positions, whose
// weights nobody else reads and which go straight to its registers. Reference:
// native/backend/cpu/conv/conv_passes.cc
// Trap: the numbering of filters and channels in a product of tensor cores is free, and chosen so that a lane
// has what lies side by side: rows g and g + 8 are filters 2g and 2g + 1, and columns 2q, 2q + 1, 2q + 8 and
// 2q + 9 are channels 4q to 4q + 3.
#include "kernels/conv/blocks.h"
#include "kernels/conv/image_store.cuh"

namespace spark {
namespace {

using namespace conv_winograd_block;
constexpr int kWarps = kThreads / 32, kSpots = 16;  // of a tile of 4 x 4
constexpr int kOwn = kSpots / kWarps;               // spots of a warp
constexpr int kRowBlocks = kFilters / 16, kColBlocks = kTiles / 8;
constexpr int kPatchWidth = kWidth + 2, kPatchHeight = kHeight + 2;
constexpr int kPairs = kChannels / 2;
constexpr int kCopies = kPatchHeight * kPatchWidth * 2;  // of 16 bytes
constexpr int kLoads = (kCopies + kThreads - 1) / kThreads;
static_assert(kTiles * kPairs == kThreads && kChannels == 16 && kOwn == 2);

// Pixels of even columns in front of those of odd ones: tiles side by side read neighbours.
__device__ int patch_slot(int row, int column) {
  return row * kPatchWidth + column % 2 * (kPatchWidth / 2) + column / 2;
}

template <typename T>
struct alignas(8) Two {
  T at[2];
};

struct Main {
  alignas(16) uint32_t patch[2][kPatchHeight * kPatchWidth][kPairs];
  alignas(16) uint32_t tiles[2][kSpots][kTiles][kPairs];  // transformed
};
// Sixteen filters: their sums, and what these come to.
struct Finish {
  alignas(16) float sums[kSpots][16][kTiles];
  float outputs[16][kPositions + 4];
};
union Shared {
  Main main;
  Finish finish;
};

// Where a block begins.
struct Place {
  int32_t n, top, left, filter;

  __device__ explicit Place(const ConvShape& shape) {
    const auto count = [](int64_t size, int step) { return static_cast<unsigned>((size + step - 1) / step); };
    const unsigned filters = count(shape.filters, kFilters);
    const unsigned columns = count(shape.out[2], kWidth), rows = count(shape.out[1], kHeight);
    const unsigned patch = blockIdx.x / filters, line = patch / columns;
    filter = static_cast<int32_t>(blockIdx.x % filters) * kFilters;
    left = static_cast<int32_t>(patch % columns) * kWidth;
    top = static_cast<int32_t>(line % rows) * kHeight;
    n = static_cast<int32_t>(line / rows);
  }
};

// Copies the pixels that a block reads, sixteen channels at a time.
struct PatchCopies {
  const uint16_t* from[kLoads];
  bool inside[kLoads];

  __device__ PatchCopies(const ConvChannelsLastArgs& args, const Place& place) {
    const ConvShape& shape = args.pass.shape;
    const auto height = static_cast<int32_t>(shape.image[1]), width = static_cast<int32_t>(shape.image[2]);
    for (int i = 0; i < kLoads; ++i) {
      const int pixel = (threadIdx.x + i * kThreads) / 2;
      const int32_t y = place.top - static_cast<int32_t>(shape.pad[1]) + pixel / kPatchWidth;
      const int32_t x = place.left - static_cast<int32_t>(shape.pad[2]) + pixel % kPatchWidth;
      inside[i] = y >= 0 && y < height && x >= 0 && x < width;
      const int64_t at = inside[i] ? (int64_t{place.n} * height + y) * width + x : 0;
      from[i] = args.image + at * args.channels + threadIdx.x % 2 * kChannelUnit;
    }
  }

  __device__ void start(uint32_t (&patch)[kPatchHeight * kPatchWidth][kPairs]) {
    for (int i = 0; i < kLoads; ++i) {
      const int copy = threadIdx.x + i * kThreads, pixel = copy / 2;
      if (copy < kCopies) {
        const int slot = patch_slot(pixel / kPatchWidth, pixel % kPatchWidth);
        copy_async(&patch[slot][copy % 2 * 4], from[i], inside[i]);
      }
      from[i] += inside[i] ? kChannels : 0;
    }
  }
};

// Bᵀ d, of one line of d.
__device__ void transform(float (&d)[4]) {
  const float first = d[0] - d[2], sum = d[1] + d[2], difference = d[2] - d[1], last = d[1] - d[3];
  d[0] = first, d[1] = sum, d[2] = difference, d[3] = last;
}

// Bᵀ d B of two channels of a tile by each thread.
template <typename Number>
__device__ void transform_patch(const uint32_t (&patch)[kPatchHeight * kPatchWidth][kPairs],
                                uint32_t (&tiles)[kSpots][kTiles][kPairs]) {
  const int pair = threadIdx.x % kPairs, tile = threadIdx.x / kPairs;
  const int row = tile / kTilesAcross * 2, column = tile % kTilesAcross * 2;
  float d[2][4][4];
#pragma unroll
  for (int i = 0; i < kSpots; ++i) {
    const uint32_t two = patch[patch_slot(row + i / 4, column + i % 4)][pair];
    d[0][i % 4][i / 4] = Number::widen(two & 0xFFFF);
    d[1][i % 4][i / 4] = Number::widen(two >> 16);
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int column = 0; column < 4; ++column) transform(d[j][column]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float line[2][4];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int column = 0; column < 4; ++column) line[j][column] = d[j][column][i];
      transform(line[j]);
    }
#pragma unroll
    for (int column = 0; column < 4; ++column) {
      tiles[i * 4 + column][tile][pair] = round_pair<Number>(line[0][column], line[1][column]);
    }
  }
}

// The weights of a warp at sixteen channels.
struct Weights {
  const uint16_t* from[kRowBlocks];  // of the first of its spots
  int64_t spot, step;                // elements to the next
  Eight at[kOwn][kRowBlocks];

  // Rows past the last filter repeat the first; their sums are not stored.
  __device__ Weights(const ConvChannelsLastArgs& args, const Place& place) {
    const auto filters = static_cast<int32_t>(args.pass.shape.filters);
    spot = int64_t{filters} * kChannels;
    step = spot * kSpots;
    for (int m = 0; m < kRowBlocks; ++m) {
      const int32_t filter = place.filter + m * 16;
      from[m] = args.left + threadIdx.x / 32 * kOwn * spot +
                int64_t{filter < filters ? filter : place.filter} * kChannels + threadIdx.x % 32 * 8;
    }
  }
  __device__ void load(int own, int m) { at[own][m] = *reinterpret_cast<const Eight*>(from[m] + own * spot); }
};

using Sums = float[kOwn][kRowBlocks][kColBlocks][4];

// Adds the products of sixteen channels, and loads the next weights in the place of those that are used.
template <typename Number>
__device__ void multiply(const uint32_t (&tiles)[kSpots][kTiles][kPairs], Weights& weights, bool more,
                         Sums& sums) {
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * kOwn;
  for (int m = 0; m < kRowBlocks; ++m) weights.from[m] += more ? weights.step : 0;
#pragma unroll
  for (int own = 0; own < kOwn; ++own) {
    Two<uint32_t> b[kColBlocks];
#pragma unroll
    for (int n = 0; n < kColBlocks; ++n) {
      b[n] = *reinterpret_cast<const Two<uint32_t>*>(&tiles[first + own][n * 8 + lane / 4][lane % 4 * 2]);
    }
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
      const Eight& eight = weights.at[own][m];
      const uint32_t a[4] = {eight.pairs[0], eight.pairs[2], eight.pairs[1], eight.pairs[3]};
#pragma unroll
      for (int n = 0; n < kColBlocks; ++n) mma_16x8x16<Number>(sums[own][m][n], a, b[n].at[0], b[n].at[1]);
      weights.load(own, m);
    }
  }
}

// Sums lie at a column that differs with the filter, so that those of a warp are in different banks.
__device__ int sum_slot(int filter, int tile) { return tile ^ filter / 2 % 4 * 8; }

// Aᵀ m A of sixteen filters, as lines of positions.
__device__ void finish_tiles(Finish& shared) {
  for (int i = threadIdx.x; i < 16 * kTiles; i += kThreads) {
    const int filter = i / kTiles, tile = i % kTiles;
    float half[2][4];
#pragma unroll
    for (int column = 0; column < 4; ++column) {
      const auto at = [&](int row) { return shared.sums[row * 4 + column][filter][sum_slot(filter, tile)]; };
      const float middle = at(1) + at(2), difference = at(1) - at(2);
      half[0][column] = at(0) + middle;
      half[1][column] = difference - at(3);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const auto& m = half[row];
      float* to = &shared.outputs[filter][(tile / kTilesAcross * 2 + row) * kWidth + tile % kTilesAcross * 2];
      to[0] = m[0] + (m[1] + m[2]);
      to[1] = (m[1] - m[2]) - m[3];
    }
  }
}

// Stores sixteen filters from `filter` on.
template <typename Number>
__device__ void store_outputs(const ConvChannelsLastArgs& args, const Place& place, int32_t filter,
                              Finish& shared) {
  const ForwardPass pass(args.pass, 0);
  const auto height = static_cast<int32_t>(args.pass.shape.out[1]);
  const auto width = static_cast<int32_t>(args.pass.shape.out[2]);
  const int column = threadIdx.x % kPositions;
  const int32_t y = place.top + column / kWidth, x = place.left + column % kWidth;
  const bool inside = y < height && x < width;
  const int64_t position = int64_t{y} * width + x;
  for (int line = threadIdx.x / kPositions; inside && line < 16; line += kThreads / kPositions) {
    const int32_t o = filter + line;
    const int64_t at = (int64_t{place.n} * pass.filters + o) * pass.positions + position;
    float& sum = shared.outputs[line][column];
    sum = pass.finished(o, at, sum);
    if (args.pass.out) args.pass.out[at] = sum;
  }
  if (!args.image_out) return;
  __syncthreads();
  // A thread eight filters of a position, and its neighbour the next eight, a sector together.
  const int spot = threadIdx.x / 2, eight = threadIdx.x % 2 * 8;
  const int32_t row = place.top + spot / kWidth, col = place.left + spot % kWidth;
  if (row >= height || col >= width) return;
  const int64_t to = (int64_t{place.n} * pass.positions + int64_t{row} * width + col) * pass.filters;
  store_eight<Number>(args.image_out + to + filter + eight, &shared.outputs[eight][spot], kPositions + 4);
}

template <typename Number>
__device__ void convolve(const ConvChannelsLastArgs& args) {
  __shared__ Shared shared;
  const Place place(args.pass.shape);
  const int32_t steps = args.channels / kChannels;
  PatchCopies copies(args, place);
  Weights weights(args, place);
  Sums sums = {};
  const auto start = [&](int32_t step) {
    if (step < steps) copies.start(shared.main.patch[step % 2]);
    copy_commit();
  };
  start(0);
  start(1);
  for (int own = 0; own < kOwn; ++own) {
    for (int m = 0; m < kRowBlocks; ++m) weights.load(own, m);
  }
  copy_wait<1>();
  __syncthreads();
  transform_patch<Number>(shared.main.patch[0], shared.main.tiles[0]);
#pragma unroll 1
  for (int32_t step = 0; step < steps; ++step) {
    copy_wait<0>();
    __syncthreads();  // the next patch and the tiles of this step are there, and those before are done with
    start(step + 2);
    if (step + 1 < steps) {
      transform_patch<Number>(shared.main.patch[(step + 1) % 2], shared.main.tiles[(step + 1) % 2]);
    }
    multiply<Number>(shared.main.tiles[step % 2], weights, step + 1 < steps, sums);
  }
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * kOwn;
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m) {
    if (place.filter + m * 16 >= args.pass.shape.filters) return;
    __syncthreads();  // all are done with what was there
#pragma unroll
    for (int i = 0; i < kOwn * kColBlocks * 2; ++i) {
      const int own = i / 2 / kColBlocks, n = i / 2 % kColBlocks, filter = lane / 4 * 2 + i % 2;
      const auto& four = sums[own][m][n];
      float* to = &shared.finish.sums[first + own][filter][sum_slot(filter, n * 8 + lane % 4 * 2)];
      *reinterpret_cast<Two<float>*>(to) = {four[i % 2 * 2], four[i % 2 * 2 + 1]};
    }
    __syncthreads();
    finish_tiles(shared.finish);
    __syncthreads();
    store_outputs<Number>(args, place, place.filter + m * 16, shared.finish);
  }
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(number, Number)                                                    \
  extern "C" __global__ void __launch_bounds__(spark::conv_winograd_block::kThreads, 1) \
      conv_winograd_##number(spark::ConvChannelsLastArgs args) {                        \
    spark::convolve<spark::Number>(args);                                               \
  }
SPARK_DEFINE(bf16, BF16)
SPARK_DEFINE(f16, F16)
#undef SPARK_DEFINE
