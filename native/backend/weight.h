// weight.h: a frozen weight as kernels see it. Part of the contract in backend.h.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace spark {

// A frozen weight W[rows, cols]. Element (r, c) is
//   f32, f16, bf16  data[r, c]
//   f8_e4m3, i8     decode(data[r, c]) · row_scale[r]
//   nvfp4           e2m1(data[r, c/2] nibble) · (e4m3(block_scale[r, c/16]) · tensor_scale), low nibble =
//   even column
//   block formats   that of block [r, c / elements] of data (block_formats.h)
// cols is a multiple of 16 for nvfp4, of the elements of a block for block formats. Scale products are
// rounded to f32 in the order written.
struct Weight {
  DType dtype;
  int64_t rows, cols;
  const void* data;
  const float* row_scale;      // [rows], f8_e4m3 and i8 only
  const uint8_t* block_scale;  // [rows, cols/16], nvfp4 only
  float tensor_scale;          // nvfp4 only
  bool packed;                 // in panels, as pack_weight writes them; CPU only
};

// Rows of a panel of a packed weight.
constexpr int64_t kPanelRows = 32;

// A weight in the layout that a processor streams: panels of kPanelRows rows, interleaved along the columns.
// In a panel, element (r, c) is at
//   f32, f16, f8_e4m3, i8  [c][r]
//   bf16                   [c/2][r][c%2], an odd number of columns being padded with 0
//   nvfp4                  byte [c/2][r], the even column in the low nibble; its block scale at [c/16][r]
//   block formats          block_panels.h
// The rows of the last panel are padded with 0. row_scale and tensor_scale stay as they are.
struct PackWeightArgs {
  Weight weight;         // not packed
  bool transposed;       // element (r, c) of weight is data[c, r]; f32 only
  void* data;            // ceil(rows/32) panels
  uint8_t* block_scale;  // nvfp4 only
};

// Matrix p of data is [O, C], packed: element p of G · W[o, c] · Gᵀ, the [6, 6] transform of a filter of 3 x
// 3 for Winograd's algorithm F(4 x 4, 3 x 3) (Lavin and Gray 2016) with the points 0, ±√½, ±√2 and ∞, formed
// in f64.
struct WinogradWeightArgs {
  Weight weight;  // [O, C · 9]
  float* data;    // [36, ceil(O/32), C, 32]
};

// What products are formed of; sums are f32 always. bf16 rounds x (and the elements of a weight that is not
// bf16 itself) to bf16, to nearest even, where the machine has instructions for it, and is f32 elsewhere; f16
// the same to f16, which ends at 65504, for weights of f16 and f32.
// nvfp4 rounds x to NVFP4 on every machine: recipe modelopt, a tensor scale for each row (nvfp4_row_scale),
// blocks of 16 along K. It is for products with the rows of a weight that is nvfp4 itself.
// i8 rounds x to signed bytes with a scale for each 32 neighbours of a row (integer_rows.h), for weights in
// block formats whose codes are integers; the products of 32 codes are summed exactly.
enum class Compute : uint8_t { kF32, kBF16, kF16, kNVFP4, kI8 };

}  // namespace spark
