// dora_merge.cc: merge and unmerge of a DoRA adapter into a weight, and the gradient of the merged weight.
#include <algorithm>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/product.h"
#include "backend/cpu/gemm/weight.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/per_thread.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kPastCache = 1 << 24;  // elements of a result that no cache holds
constexpr int64_t kCols = 128;           // of a tile: with its part of A it stays in the first-level cache

struct Workspace {
  alignas(64) float tile[kPanelRows * kLine];
};

// B scaled, and A in lines that can be read by whole vectors and lie in different sets of the cache.
struct Factors {
  std::vector<float> b, a;
  int64_t a_stride;
};

Factors factors(const LowRank& low_rank, float scale, int64_t rows, int64_t cols) {
  const int64_t rank = low_rank.rank, stride = (cols / kVector + 2) * kVector;
  Factors made{std::vector<float>(low_rank.b, low_rank.b + rows * rank), std::vector<float>(rank * stride),
               stride};
  for (float& value : made.b) value *= scale;
  for (int64_t k = 0; k < rank; ++k) std::copy_n(low_rank.a + k * cols, cols, made.a.data() + k * stride);
  return made;
}

// Columns before the first that begins a line of the cache in every row; 0 where rows differ.
int64_t columns_before_line(const float* out, int64_t cols) {
  const auto at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) / sizeof(float));
  return cols % kVector == 0 ? (kVector - at % kVector) % kVector : 0;
}

// Rows [row, row + rows) by columns [col, col + count).
struct Tile {
  int64_t row, rows, col, count;
};

// Memory that is read next: `bits` for each element of a tile.
struct Ahead {
  const char* next;
  int64_t bits;
};

// out = gain ∘ (W + scale · B·A); without a gain, 1. read(tile, to) writes a tile of W, whose first column is
// a multiple of 16, in lines of kLine, and says what it will read next.
template <typename Read>
void add_low_rank(const LowRank& low_rank, float scale, int64_t rows, int64_t cols, const float* gain,
                  float* out, const Read& read) {
  const Factors with = factors(low_rank, scale, rows, cols);
  const int64_t before = columns_before_line(out, cols), panels = (rows + kPanelRows - 1) / kPanelRows;
  const bool past_cache = rows * cols >= kPastCache && cols % kVector == 0;
  parallel_for(panels, grain_for(kPanelRows * cols, 1 << 16), [&](int64_t begin, int64_t end) {
    auto& [tile] = PerThread<Workspace>::get();
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t row = panel * kPanelRows, height = std::min(kPanelRows, rows - row);
      // Tiles end where a line of the cache does, so that each is stored as a whole.
      for (int64_t col = 0, next; col < cols; col = next) {
        next = col < before ? before : std::min(cols, col + kCols);
        const int64_t first = col / kVector * kVector, last = (next + kVector - 1) / kVector * kVector;
        const Ahead ahead = read(Tile{row, height, first, std::min(cols, last) - first}, tile);
        kernels().gemm.add_low_rank({height, next - col, low_rank.rank, tile + (col - first),
                                     with.b.data() + row * low_rank.rank, with.a.data() + col, with.a_stride,
                                     gain ? gain + row : nullptr, out + row * cols + col, cols, ahead.next,
                                     ahead.bits, past_cache && col >= before});
      }
    }
#if defined(__x86_64__)
    _mm_sfence();  // what was stored past the cache becomes visible to other threads
#endif
  });
}

Ahead read_weight(const Weight& weight, const Tile& tile, float* to) {
  decode(weight, tile.row, tile.rows, tile.col, tile.count, to);
  if (!weight.packed) return {nullptr, 0};
  const int64_t bits = dtype_bits(weight.dtype),
                end = tile.row * weight.cols + (tile.col + tile.count) * kPanelRows;
  return {static_cast<const char*>(weight.data) + end * bits / 8, bits};
}

// out[o, i] = gain[o] · V[o, i]; without a gain, V
void scaled_sum(const Weight& weight, const LowRank& low_rank, const float* gain, float* out) {
  add_low_rank(low_rank, low_rank.scale, weight.rows, weight.cols, gain, out,
               [&](const Tile& tile, float* to) { return read_weight(weight, tile, to); });
}

}  // namespace

void dora_merge(const DoraMergeArgs& args) { scaled_sum(args.weight, args.low_rank, args.gain, args.merged); }

void dora_merge_backward(const DoraMergeBackwardArgs& args) {
  const int64_t rows = args.weight.rows, cols = args.weight.cols, rank = args.low_rank.rank;
  const float scale = args.low_rank.scale;
  scaled_sum(args.weight, args.low_rank, nullptr, args.dv);
  parallel_for(rows, grain_for(cols, 1 << 14), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const float* dmerged = args.dmerged + o * cols;
      float* v = args.dv + o * cols;
      double sum = 0;
      for (int64_t i = 0; i < cols; ++i) sum += static_cast<double>(dmerged[i]) * v[i];
      const double norm = std::max(args.norm[o], kSmallestNorm);
      args.dmagnitude[o] = static_cast<float>(sum / norm);
      const float radial = args.exact_norm ? static_cast<float>(sum / (norm * norm)) : 0;
      for (int64_t i = 0; i < cols; ++i) v[i] = args.gain[o] * (dmerged[i] - radial * v[i]);
    }
  });
  product(rank, cols, {{columns_of(args.low_rank.b, rank), columns_of(args.dv, cols), rows}},
          [&](int64_t r, int64_t i, int64_t count, const float* sums) {
            for (int64_t j = 0; j < count; ++j) args.da[r * cols + i + j] = scale * sums[j];
          });
  product(rows, rank, {{rows_of(args.dv, cols), rows_of(args.low_rank.a, cols), cols}},
          [&](int64_t o, int64_t r, int64_t count, const float* sums) {
            for (int64_t j = 0; j < count; ++j) args.db[o * rank + r + j] = scale * sums[j];
          });
}

void dora_unmerge(const DoraUnmergeArgs& args) {
  add_low_rank(args.low_rank, -args.low_rank.scale, args.rows, args.cols, nullptr, args.restored,
               [&](const Tile& tile, float* to) {
                 for (int64_t i = 0; i < tile.rows; ++i) {
                   const float gain = args.gain[tile.row + i];
                   const float* merged = args.merged + (tile.row + i) * args.cols + tile.col;
                   for (int64_t j = 0; j < tile.count; ++j) to[i * kLine + j] = merged[j] / gain;
                 }
                 return Ahead{nullptr, 0};
               });
}

}  // namespace spark::cpu
