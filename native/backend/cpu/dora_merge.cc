#include <algorithm>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "backend/cpu/cpu.h"
#include "backend/cpu/product.h"
#include "backend/cpu/weight.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kPastCache = 1 << 24;  // elements of a result that no cache holds

// What a thread works in: a tile of a panel's height stays in the first-level cache.
struct Workspace {
  alignas(64) float b[kPanelRows * kLine];
  alignas(64) float sliver[kSliver * kLine];
  alignas(64) float delta[kPanelRows * kTile];
  alignas(64) float weight[kPanelRows * kLine];
};
thread_local Workspace workspace;

// Rows [row, row + rows) by columns [col, col + count).
struct Tile {
  int64_t row, rows, col, count;
};

// delta[i * kTile + j] = scale · (B·A)[row + i, col + j], scale being repeated R times
void low_rank_tile(const LowRank& low_rank, const float* scale, int64_t cols, const Tile& tile) {
  auto& [b, sliver, delta, _] = workspace;
  const Operand left = scaled(rows_of(low_rank.b, low_rank.rank), scale);
  const Operand right = columns_of(low_rank.a, cols);
  std::fill_n(delta, tile.rows * kTile, 0.0f);
  for (int64_t k = 0; k < low_rank.rank; k += kChunk) {
    const int64_t terms = std::min(kChunk, low_rank.rank - k);
    gemm().pack_rows(left, tile.row, tile.rows, k, terms, b);
    for (int64_t j = 0; j < tile.count; j += kSliver) {
      gemm().multiply(b, tile.rows, right, tile.col + j, std::min(kSliver, tile.count - j), k, terms, sliver,
                      delta + j);
    }
  }
}

// Calls body(tile) with scale · B·A in workspace.delta for tiles that cover [rows, cols].
template <typename Body>
void for_tiles(const LowRank& low_rank, int64_t rows, int64_t cols, const Body& body) {
  const std::vector<float> scale(low_rank.rank, low_rank.scale);
  const int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
  parallel_for(panels, 1 + (1 << 16) / (kPanelRows * cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t row = panel * kPanelRows;
      for (int64_t col = 0; col < cols; col += kTile) {
        const Tile tile{row, std::min(kPanelRows, rows - row), col, std::min(kTile, cols - col)};
        low_rank_tile(low_rank, scale.data(), cols, tile);
        body(tile);
      }
    }
#if defined(__x86_64__)
    _mm_sfence();  // what was stored past the cache becomes visible to other threads
#endif
  });
}

// to[j] = gain · (a[j] + b[j]); past the cache, whose lines would have to be read first, where that is wanted
void store_sum(const float* a, const float* b, float gain, int64_t count, bool past_cache, float* to) {
  int64_t j = 0;
#if defined(__x86_64__)
  if (past_cache && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    for (; j + 4 <= count; j += 4) {
      const __m128 sum = _mm_add_ps(_mm_loadu_ps(a + j), _mm_loadu_ps(b + j));
      _mm_stream_ps(to + j, _mm_mul_ps(_mm_set1_ps(gain), sum));
    }
  }
#else
  (void)past_cache;
#endif
  for (; j < count; ++j) to[j] = gain * (a[j] + b[j]);
}

}  // namespace

void dora_merge(const DoraMergeArgs& args) {
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  const bool past_cache = rows * cols >= kPastCache;
  for_tiles(args.low_rank, rows, cols, [&](const Tile& tile) {
    auto& [_, __, delta, weight] = workspace;
    decode(args.weight, tile.row, tile.rows, tile.col, tile.count, weight);
    for (int64_t i = 0; i < tile.rows; ++i) {
      store_sum(weight + i * kLine, delta + i * kTile, args.gain[tile.row + i], tile.count, past_cache,
                args.merged + (tile.row + i) * cols + tile.col);
    }
  });
}

void dora_unmerge(const DoraUnmergeArgs& args) {
  for_tiles(args.low_rank, args.rows, args.cols, [&](const Tile& tile) {
    for (int64_t i = 0; i < tile.rows; ++i) {
      const int64_t at = (tile.row + i) * args.cols + tile.col;
      const float gain = args.gain[tile.row + i], *delta = workspace.delta + i * kTile;
      for (int64_t j = 0; j < tile.count; ++j) args.restored[at + j] = args.merged[at + j] / gain - delta[j];
    }
  });
}

}  // namespace spark::cpu
