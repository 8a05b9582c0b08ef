// linear_integer_mma.cu: LinearIntegerArgs of unpacked bytes on tensor cores, exact in int32 and modulo 2^32
// beyond it. Reference: native/backend/cpu/gemm/linear_integer.cc
#include "kernels/gemm/blocks.h"
#include "kernels/gemm/byte_step.cuh"
#include "kernels/gemm/integer_result.cuh"

namespace spark {
namespace {

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

template <int kTile, typename X, typename W>
__device__ void product(const LinearIntegerArgs& args) {
  __shared__ ByteTiles<kTile> shared;
  const Corner corner = spark::corner<kTile>(blockIdx.x, args.tokens, args.rows);
  const bool has_zeros = args.x_zero || args.w_zero;
  uint32_t line_sum = 0;
  const ByteStep<kTile, X, W> step{shared.stages, has_zeros, line_sum};
  Sums<kTile, uint32_t> sums = {};
  add_segment(shared.stages, ByteLines<kTile>{static_cast<const uint8_t*>(args.x), args.tokens, args.cols},
              ByteLines<kTile>{static_cast<const uint8_t*>(args.w), args.rows, args.cols}, corner.row,
              corner.col, step, sums);
  if (has_zeros) shared.keep(line_sum);
  const auto store = [&](int64_t t, int64_t o, uint32_t sum) {
    if (has_zeros) {
      const uint32_t p = args.x_zero ? args.x_zero[t] : 0, q = args.w_zero ? args.w_zero[o] : 0;
      sum -= shared.of_zeros(t - corner.row, o - corner.col, p, q, args.cols);
    }
    store_integer(args.result, args.bias, o, t * args.rows + o, sum);
  };
  store_tile<kTile>(args.tokens, args.rows, corner.row, corner.col, sums, shared.results.half, store);
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
SPARK_DEFINE_TYPES(64, 5)
