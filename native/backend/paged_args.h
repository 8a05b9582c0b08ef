// paged_args.h: attention over keys and values that lie in blocks. Part of the contract in backend.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "backend/weight.h"
#include "core/dtype.h"
#include "core/float_formats.h"

namespace spark {

struct PagedAttentionShape {
  int64_t tokens, sequences;       // N and B
  int64_t heads, kv_heads, depth;  // H, K, of which H is a multiple, and D >= 1
  int64_t rotary;                  // R: elements of a head that are rotated, even, at most D; 0: none
  int64_t blocks, block_size;      // of the caches; block_size >= 1
  int64_t table;                   // T: blocks of a sequence at most
};

// Row n of sequence b, starts[b] <= n < starts[b + 1], has the position p = past[b] + n − starts[b]. Position
// s of b lies in block[b, s / block_size], at s mod block_size. With norm(x) = x / √(Σ x² / D + epsilon) ∘
// scale where there is one, and R elements rotated by the angles of the row, each row
//   1. writes rotate(norm(key)) and value into the caches, at p, or where slots say;
//   2. sees the positions s <= p, with a window s > p − window, and then w[s] = scale · rotate(norm(query)) ·
//      k[s], softcap · tanh(w / softcap) where softcap is not 0; y = Σ e^w[s] · v[s] / (Σ e^w[s] + e^sink).
// Head h of the queries meets head ⌊h · K / H⌋ of keys and values. All rows are written before any is read.
// Rows of no sequence, and those whose slot is −1, are padding: they write nothing, and their y is 0.
// Sums over s are taken in chunks of kPagedChunk positions, counted from 0, each in units of its own e^max,
// which are merged in order: they depend on neither the other rows, the blocks nor the number of threads.
// The caches hold f32, f16, bf16, f8_e4m3 (saturated at ±448) or i8, which has a scale for each token and
// head: max |x| / 127. Rows are rounded when they are written, so a row sees itself rounded, too. Elements of
// starts, past, block and slots that lead out of their arrays are ERR_ARGUMENT; on CUDA such rows are NaN and
// write nothing. `compute` of kBF16 or kF16 lets CUDA round queries, keys, values and their weights to it,
// and take sums in another order, where a call has many rows: a row's result then depends on its sequence
// alone, and the way is chosen by the numbers of rows and sequences.
struct PagedAttentionArgs {
  PagedAttentionShape shape;
  float scale, softcap, epsilon;
  int64_t window;                      // positions that a row sees, its own included; 0: all
  bool interleaved;                    // pairs are (2i, 2i + 1), not (i, i + R / 2)
  const float *query, *key, *value;    // [N, H·D], [N, K·D], [N, K·D]
  const float *query_norm, *key_norm;  // [D]; null: not normalized
  const float *cos, *sin;              // [N, R / 2]; null where R is 0
  const float* sinks;                  // [H]; null: none
  const int32_t* starts;               // [B + 1]
  const int32_t* past;                 // [B]
  const int32_t* block;                // [B, T]; what no row sees may be anything
  const int32_t* slots;                // [N]: block · block_size + offset, or −1; null: as the table says
  DType cache_dtype;
  void *key_cache, *value_cache;     // [blocks, block_size, K, D], updated
  float *key_scales, *value_scales;  // [blocks, block_size, K], updated; null unless i8
  void* y;                           // [N, H·D] of y_dtype
  Compute compute;
  FloatType y_dtype = FloatType::kF32;  // 16 bits: CUDA only
  // Output: y as rows rounded to NVFP4, of H·D elements, as y_rounded of LinearArgs; null: not wanted. Beside
  // it y is of f32, or null: not wanted. CUDA only.
  uint16_t* y_rounded = nullptr;
  float y_scale = 0;
};

constexpr int64_t kPagedChunk = 256;

// The first position that a row at `position` sees.
SPARK_HOST_DEVICE inline int64_t first_seen(const PagedAttentionArgs& args, int64_t position) {
  return args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
}

// The scale of the codes of numbers whose largest magnitude this is, and the code of one of them.
SPARK_HOST_DEVICE inline float int8_scale(float largest) { return largest / 127; }
SPARK_HOST_DEVICE inline int8_t int8_code(float value, float scale) {
  const float code = rintf(value / scale);
  return code >= -127 && code <= 127 ? static_cast<int8_t>(code) : 0;  // 0 / 0 is 0
}

}  // namespace spark
