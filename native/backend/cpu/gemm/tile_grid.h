// tile_grid.h: how the sums of products are cut into tiles for threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "backend/cpu/gemm/gemm_kernels.h"
#include "backend/cpu/gemm/product.h"

namespace spark::cpu {

inline int64_t pieces(int64_t length, int64_t size) { return (length + size - 1) / size; }

// What a line of each side costs a tile that reads it, in lines of the other side that it could be multiplied
// by.
struct LineCosts {
  int64_t row, col;
};

// Tiles of rows x cols sums, in the order in which threads take them: neighbours share their columns, or
// their rows.
struct TileGrid {
  int64_t rows, cols, height, width;
  bool by_rows;

  int64_t down() const { return pieces(rows, height); }
  int64_t across() const { return pieces(cols, width); }
  int64_t count() const { return down() * across(); }

  Region tile(int64_t index) const {
    const int64_t row = (by_rows ? index / across() : index % down()) * height;
    const int64_t col = (by_rows ? index % across() : index / down()) * width;
    return {row, std::min(height, rows - row), col, std::min(width, cols - col)};
  }

  // What the first tiles cost, so many. Vectors of columns are whole ones.
  int64_t cost(int64_t tiles, LineCosts lines) const {
    const int64_t vectors = pieces(cols, kVector) * kVector;
    const auto block = [&](int64_t height, int64_t width, int64_t down, int64_t across) {
      return height * width + lines.row * height * across + lines.col * width * down;
    };
    if (by_rows) {
      const int64_t above = tiles / across(), left = tiles % across(), done = std::min(rows, above * height);
      return block(done, vectors, above, across()) +
             block(std::min(height, rows - done), std::min(vectors, left * width), left > 0, left);
    }
    const int64_t before = tiles / down(), above = tiles % down(), done = std::min(vectors, before * width);
    return block(rows, done, down(), before) +
           block(std::min(rows, above * height), std::min(width, vectors - done), above, above > 0);
  }
};

// What the thread has to do that has most of the tiles of `count` products, plus a part of the largest tile,
// for which others may wait when a thread comes late; at least `limit` where it is no less.
inline int64_t longest_share(const TileGrid& grid, LineCosts lines, int64_t count, int64_t threads,
                             int64_t limit) {
  const int64_t each = grid.count(), one = grid.cost(each, lines);
  int64_t longest = 0, before = 0;
  const int64_t late = grid.cost(1, lines) / 8;
  for (int64_t share = 1; share <= threads && longest + late < limit; ++share) {
    const int64_t end = count * each * share / threads;
    const int64_t cost = end / each * one + grid.cost(end % each, lines);
    longest = std::max(longest, cost - before);
    before = cost;
  }
  return longest + late;
}

// Large tiles read and pack least, but threads want equal shares of all. `terms` is the number of products
// that are worth a tile of its own.
inline TileGrid tile_grid(int64_t count, int64_t rows, int64_t cols, int64_t depth, LineCosts lines,
                          int64_t threads, int64_t terms) {
  TileGrid best{rows, cols, kTile, kTile, false};
  const bool small = count * rows * cols * depth <= terms;
  if (threads == 1 || small || count * best.count() >= 8 * threads) return best;
  const auto for_cuts = [&](int64_t side, const auto& body) {
    int64_t last = 0;
    for (int64_t cuts = pieces(side, kTile), i = 0; i < 3; ++i, cuts *= 2) {
      for (const int64_t number : {cuts, pieces(cuts, threads) * threads}) {
        const int64_t size = pieces(pieces(side, number), kPanelRows) * kPanelRows;
        if (size != last) body(size);
        last = size;
      }
    }
  };
  int64_t least = longest_share(best, lines, count, threads, INT64_MAX);
  for_cuts(rows, [&](int64_t height) {
    for_cuts(cols, [&](int64_t width) {
      if (height * width * depth < terms) return;
      for (const bool by_rows : {false, true}) {
        const TileGrid grid{rows, cols, height, width, by_rows};
        const int64_t cost = longest_share(grid, lines, count, threads, least);
        if (cost >= least) continue;
        least = cost;
        best = grid;
      }
    });
  });
  return best;
}

}  // namespace spark::cpu
