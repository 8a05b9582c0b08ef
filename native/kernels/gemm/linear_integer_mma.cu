// linear_integer_mma.cu: y[t, o] = Σ_i (x[t, i] − x_zero[t]) · (w[o, i] − w_zero[o]) of unpacked bytes on
// tensor cores, exact in int32 and modulo 2^32 beyond it. Two bytes take the place of a 16-bit number in the
// tiles of tiles.cuh, whose fragments then are those of this instruction, too; a tile is 64 along K. Bytes
// are multiplied as they lie in memory, with p = x_zero and q = w_zero: Σ (x − p)(w − q) = Σ xw − p·Σw −
// q·(Σx − K·p). Reference: native/backend/cpu/gemm/linear_integer.cc
#include <type_traits>

#include "kernels/gemm/blocks.h"
#include "kernels/gemm/tiles.cuh"

namespace spark {
namespace {

constexpr int kStages = 3;

// Lines of bytes along K, zeros beyond their end. Lines past the last one repeat it; their sums are not
// stored.
template <int kTile>
struct ByteLines {
  static constexpr bool kAlongK = true;
  struct Registers {};
  const uint8_t* data;
  int64_t lines, bytes;
  int64_t depth = (bytes + 1) / 2;

  __device__ bool starts_copies() const { return true; }
  __device__ void start(Tile<kTile>& tile, int64_t line, int64_t k) const {
    const bool aligned = bytes % 16 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
    for (int i = 0; i < kLoads; ++i) {
      const int at = threadIdx.x + i * kThreads<kTile>, row = at / 4, eight = at % 4;
      const int64_t first = 2 * k + eight * 16;
      const uint8_t* from = data + min(line + row, lines - 1) * bytes + first;
      uint16_t* to = tile + row_offset(row, eight);
      if (aligned) {
        copy_async(to, first < bytes ? from : data, first < bytes);
      } else {
        Bytes<16> sixteen;
        sixteen.load(from, bytes - first);
        *reinterpret_cast<Bytes<16>*>(to) = sixteen;
      }
    }
  }
  __device__ void fetch(Registers&, int64_t, int64_t) const {}
  __device__ void store(Tile<kTile>&, const Registers&) const {}
};

// Multiplies bytes, and sums those of a line for each thread: of x, then of w.
template <int kTile, typename X, typename W>
struct ByteStep {
  const Stages<kStages, kTile>& stages;
  bool sums_lines;
  uint32_t& line_sum;

  __device__ void start(int, int64_t) const {}
  __device__ void multiply(int stage, int k, int m, int n, uint32_t (&sums)[4], const uint32_t (&a)[4],
                           uint32_t b0, uint32_t b1) const {
    if (m == 0 && n == 0 && sums_lines) add_line(stage, k);
    mma_16x8x32<X, W>(sums, a, b0, b1);
  }

  __device__ void add_line(int stage, int k) const {
    constexpr uint32_t kOnes = 0x01010101;
    const bool of_x = threadIdx.x < kTile;
    const auto& tile = of_x ? stages.left[stage] : stages.right[stage];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Eight eight = *reinterpret_cast<const Eight*>(tile + row_offset(threadIdx.x % kTile, k * 2 + i));
#pragma unroll
      for (const uint32_t four : eight.pairs) {
        line_sum = (of_x ? std::is_signed_v<X> : std::is_signed_v<W>)
                       ? __dp4a(static_cast<int>(four), static_cast<int>(kOnes), static_cast<int>(line_sum))
                       : __dp4a(four, kOnes, line_sum);
      }
    }
  }
};

template <int kTile>
union Shared {
  Stages<kStages, kTile> stages;
  struct {
    Half<kTile, uint32_t> half;  // of store_tile()
    uint32_t x_sums[kTile], w_sums[kTile];
  } results;
};

template <int kTile, typename X, typename W>
__device__ void product(const LinearIntegerArgs& args) {
  __shared__ Shared<kTile> shared;
  const Corner corner = spark::corner<kTile>(blockIdx.x, args.tokens, args.rows);
  const bool has_zeros = args.x_zero || args.w_zero;
  uint32_t line_sum = 0;
  const ByteStep<kTile, X, W> step{shared.stages, has_zeros, line_sum};
  Sums<kTile, uint32_t> sums = {};
  add_segment(shared.stages, ByteLines<kTile>{static_cast<const uint8_t*>(args.x), args.tokens, args.cols},
              ByteLines<kTile>{static_cast<const uint8_t*>(args.w), args.rows, args.cols}, corner.row,
              corner.col, step, sums);
  auto& results = shared.results;
  if (has_zeros) (threadIdx.x < kTile ? results.x_sums : results.w_sums)[threadIdx.x % kTile] = line_sum;
  const auto store = [&](int64_t t, int64_t o, uint32_t sum) {
    if (has_zeros) {
      const uint32_t p = args.x_zero ? args.x_zero[t] : 0, q = args.w_zero ? args.w_zero[o] : 0;
      const uint32_t x_sum = results.x_sums[t - corner.row] - static_cast<uint32_t>(args.cols) * p;
      sum -= p * results.w_sums[o - corner.col] + q * x_sum;
    }
    static_cast<uint32_t*>(args.result.y)[t * args.rows + o] = sum;
  };
  store_tile<kTile>(args.tokens, args.rows, corner.row, corner.col, sums, results.half, store);
}

}  // namespace
}  // namespace spark

// linear_integer_mma_<tile>_<type of x>_<type of w>.
#define SPARK_DEFINE(tile, blocks, x, X, w, W)                                                         \
  extern "C" __global__ void __launch_bounds__(spark::linear_integer_mma_block::threads(tile), blocks) \
      linear_integer_mma_##tile##_##x##_##w(spark::LinearIntegerArgs args) {                           \
    spark::product<tile, X, W>(args);                                                                  \
  }
#define SPARK_DEFINE_TYPES(tile, blocks)               \
  SPARK_DEFINE(tile, blocks, u8, uint8_t, u8, uint8_t) \
  SPARK_DEFINE(tile, blocks, u8, uint8_t, i8, int8_t)  \
  SPARK_DEFINE(tile, blocks, i8, int8_t, u8, uint8_t)  \
  SPARK_DEFINE(tile, blocks, i8, int8_t, i8, int8_t)
SPARK_DEFINE_TYPES(128, 2)
SPARK_DEFINE_TYPES(64, 4)
