// precision_args.h: casts and quantizers. Part of the contract in backend.h.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/float_formats.h"
#include "core/quantizers.h"

namespace spark {

// How a cast to f8_e8m0, which holds powers of two, rounds: to the next larger one, the next smaller one, or
// the nearest, the larger one of two that are as near.
enum class Rounding : uint8_t { kUp, kDown, kNearest };

// dst[i] = src[i] in another format, for i < count; round to nearest even, what is smaller than f32 through
// f32, which holds every such format exactly. f8: `saturate` sends ±Inf and everything out of range to the
// largest finite value; otherwise f8_e5m2 gives ±Inf and the others NaN. NaN stays NaN, but for f4, where it
// is 0. Floats become integers by dropping their fraction; `saturate` sends what is out of range to the
// nearest integer of the type, NaN to 0; otherwise integers wrap around, and a float beyond 64 bits gives the
// nearest 64-bit integer first. bool is 1 for all but 0. Any dtype but nvfp4. Recipe: docs/numerics.md.
struct CastArgs {
  DType src_dtype, dst_dtype;
  int64_t count;
  bool saturate;
  const void* src;
  void* dst;
  Rounding rounding = Rounding::kUp;  // to f8_e8m0
  bool bits = false;                  // dst takes the bits instead of the number; both types are of one size
};

// out[0] = max |src[i]|; NaN when any element is NaN; 0 when count is 0. dtypes: f32, f16, bf16.
struct AmaxArgs {
  DType dtype;
  int64_t count;
  const void* src;
  float* out;  // [1]
};

// NVFP4 by a recipe of docs/numerics.md with a given tensor scale = amax / 2688, at least 2^-126. src is
// finite.
struct Nvfp4QuantizeArgs {
  DType src_dtype;  // f32, f16, bf16
  int64_t rows, cols;
  Nvfp4Recipe recipe;
  float tensor_scale;
  float encode_scale;    // te: 2688 / amax, which it uses in place of the tensor scale
  const void* src;       // [rows, cols]
  uint8_t* packed;       // [rows, cols/2]
  uint8_t* block_scale;  // [rows, cols/16]
};

// dst[r, c] = the element of an nvfp4 Weight, f32; code 8 (-0) gives +0.
struct Nvfp4DequantizeArgs {
  int64_t rows, cols;
  float tensor_scale;
  const uint8_t* packed;
  const uint8_t* block_scale;
  float* dst;  // [rows, cols]
};

// A scale per block of block_rows x block_cols, those at the edges being smaller: scale = max|src| of the
// block / 448, or 1 where that is 0; codes = E4M3(src / scale), saturating. src is finite.
struct Fp8QuantizeArgs {
  DType src_dtype;  // f32, f16, bf16
  int64_t rows, cols;
  int64_t block_rows, block_cols;  // at least 1
  const void* src;
  uint8_t* codes;  // [rows, cols]
  float* scale;    // [ceil(rows / block_rows), ceil(cols / block_cols)]
};

// Block scales between row-major order and that of the block-scaled products of cuBLASLt: tiles of 128 x 4 in
// row-major order, scale (r, c) of a tile at r % 32 · 16 + r / 32 · 4 + c. Beyond the matrix tiles hold 0.
struct SwizzleScalesArgs {
  int64_t rows, cols;
  bool inverse;        // from tiles to rows
  const uint8_t* src;  // [rows, cols]; tiles when inverse
  uint8_t* dst;        // [ceil(rows/128), ceil(cols/4), 512]; rows when inverse
};

// Index of a scale among the tiles.
SPARK_HOST_DEVICE inline int64_t swizzled_index(int64_t row, int64_t col, int64_t cols) {
  const int64_t tile = row / 128 * ((cols + 3) / 4) + col / 4;
  return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4;
}

}  // namespace spark
