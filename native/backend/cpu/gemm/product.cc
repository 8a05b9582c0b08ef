// product.cc: f32 GEMM: tiles, segments along K, threads.
#include "backend/cpu/gemm/product.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/gemm/tile_grid.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/per_thread.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrainTerms = 1 << 17;  // products worth waking a thread for

bool is_plain(const Weight& weight) { return weight.dtype == DType::kF32 && !weight.packed; }

// What a thread works in: a panel of a, a panel of b and a tile of sums stay in the second-level cache. Too
// large for the stack of a worker thread.
struct Workspace {
  alignas(64) float rows[kTile * kLine];
  alignas(64) float panel[kPanelRows * kLine];
  alignas(64) float sums[kTile * kTile];
};
Workspace& workspace() { return PerThread<Workspace>::get(); }

using Tile = Region;

void add_chunk(const GemmKernels& gemm, const Tile& tile, const Segment& segment, int64_t k, int64_t count) {
  auto& [rows, panel, sums] = workspace();
  const Left left = gemm.pack_left(segment.a, {tile.row, tile.rows, k, count}, rows);
  for (int64_t col = 0; col < tile.cols; col += kPanelRows) {
    const int64_t cols = std::min(kPanelRows, tile.cols - col);
    gemm.multiply(left, tile.rows, segment.b, {tile.col + col, cols, k, count}, panel, sums + col);
  }
}

// A few rows by packed lines: each panel is read from its start to its end.
void add_streams(const GemmKernels& gemm, const Tile& tile, const Segment& segment) {
  auto& [rows, panel, sums] = workspace();
  for (int64_t k = 0; k < segment.depth; k += kChunk) {
    gemm.pack_rows(segment.a, {tile.row, tile.rows, k, std::min(kChunk, segment.depth - k)},
                   rows + k / kChunk * tile.rows * kLine);
  }
  for (int64_t col = 0; col < tile.cols; col += kSmallN) {
    const int64_t cols = std::min(kSmallN, tile.cols - col);
    for (int64_t k = 0; k < segment.depth; k += kChunk) {
      gemm.multiply({rows + k / kChunk * tile.rows * kLine, 0}, tile.rows, segment.b,
                    {tile.col + col, cols, k, std::min(kChunk, segment.depth - k)}, panel, sums + col);
    }
  }
}

bool can_stream(const Tile& tile, const Segment& segment) {
  const Weight* weight = segment.b.weight;
  return weight && weight->packed && !segment.b.columns && tile.rows <= kSmallM &&
         pieces(segment.depth, kChunk) * tile.rows <= kTile;
}

// The sums of a tile, in the workspace.
void add_segments(const GemmKernels& gemm, const Tile& tile, std::initializer_list<Segment> segments) {
  std::fill_n(workspace().sums, tile.rows * kTile, 0.0f);
  for (const Segment& segment : segments) {
    if (can_stream(tile, segment)) {
      add_streams(gemm, tile, segment);
      continue;
    }
    for (int64_t k = 0; k < segment.depth; k += kChunk) {
      add_chunk(gemm, tile, segment, k, std::min(kChunk, segment.depth - k));
    }
  }
}

// Columns of sums as lines that are kLine elements apart.
const float* transposed_sums(const GemmKernels& gemm, const Tile& tile) {
  auto& [rows, panel, sums] = workspace();
  gemm.pack_rows(columns_of(sums, kTile), {0, tile.cols, 0, tile.rows}, rows);
  return rows;
}

// Whether a product has so few sums, and those so many terms, that threads do better to share its chunks.
bool is_deep(int64_t rows, int64_t cols, const Segment& segment) {
  const Tile tile{0, rows, 0, cols};
  return thread_count() > 1 && rows > 0 && cols > 0 && cols <= kSmallN && can_stream(tile, segment) &&
         rows * cols * segment.depth >= 2 * kGrainTerms;
}

// As add_segments(). Each chunk has sums of its own, which are then added in the order of the chunks.
void add_deep(const GemmKernels& gemm, const Tile& tile, const Segment& segment) {
  float* sums = workspace().sums;
  const int64_t chunks = pieces(segment.depth, kChunk), size = tile.rows * kTile;
  const int64_t grain = 1 + kGrainTerms / (tile.rows * tile.cols * kChunk);
  parallel_for(chunks, grain, [&](int64_t begin, int64_t end) {
    auto& [rows, panel, own_sums] = workspace();
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t k = chunk * kChunk, count = std::min(kChunk, segment.depth - k);
      std::fill_n(sums + chunk * size, size, 0.0f);
      gemm.pack_rows(segment.a, {tile.row, tile.rows, k, count}, rows);
      gemm.multiply({rows, 0}, tile.rows, segment.b, {tile.col, tile.cols, k, count}, panel,
                    sums + chunk * size);
    }
  });
  for (int64_t chunk = 1; chunk < chunks; ++chunk) {
    for (int64_t at = 0; at < size; ++at) sums[at] += sums[chunk * size + at];
  }
}

void store_sums(const GemmKernels& gemm, const Tile& tile, StoreBy by, Store store) {
  if (by == StoreBy::kRows) {
    const float* sums = workspace().sums;
    for (int64_t m = 0; m < tile.rows; ++m) store(tile.row + m, tile.col, tile.cols, sums + m * kTile);
    return;
  }
  const float* columns = transposed_sums(gemm, tile);
  for (int64_t n = 0; n < tile.cols; ++n) store(tile.col + n, tile.row, tile.rows, columns + n * kLine);
}

void compute(const GemmKernels& gemm, const Tile& tile, std::initializer_list<Segment> segments, StoreBy by,
             Store store) {
  add_segments(gemm, tile, segments);
  store_sums(gemm, tile, by, store);
}

// The last chunk of each block of sums goes on to y while it is in registers. A residual behind an activation
// is for one that is_bounds().
void multiply_store_tile(const GemmKernels& gemm, const Tile& tile, const Segment& segment,
                         const Epilogue& to) {
  auto& [rows, panel, sums] = workspace();
  const int64_t last = std::max<int64_t>(pieces(segment.depth, kChunk) - 1, 0) * kChunk;
  const int64_t count = segment.depth - last;
  if (last > 0) std::fill_n(sums, tile.rows * kTile, 0.0f);
  for (int64_t k = 0; k < last; k += kChunk) add_chunk(gemm, tile, segment, k, kChunk);
  const Left left = gemm.pack_left(segment.a, {tile.row, tile.rows, last, count}, rows);
  for (int64_t col = 0; col < tile.cols; col += kPanelRows) {
    gemm.multiply_store(left, tile.rows, segment.b,
                        {tile.col + col, std::min(kPanelRows, tile.cols - col), last, count}, panel,
                        last > 0 ? sums + col : nullptr, epilogue_at(to, 0, col));
  }
  activate_rows(tile.rows, tile.cols, to);
}

void compute_into(const GemmKernels& gemm, const Tile& tile, const Segment& segment, StoreBy by,
                  const Epilogue& to) {
  if (by == StoreBy::kColumns) {
    add_segments(gemm, tile, {segment});
    const float* columns = transposed_sums(gemm, tile);
    return apply_epilogue(columns, kLine, tile.cols, tile.rows, epilogue_at(to, tile.col, tile.row));
  }
  const Epilogue from = epilogue_at(to, tile.row, tile.col);
  const bool in_place = !can_stream(tile, segment) && (!to.residual || to.residual_first);
  if (is_bounds(to.activation) || in_place) return multiply_store_tile(gemm, tile, segment, from);
  add_segments(gemm, tile, {segment});
  apply_epilogue(workspace().sums, kTile, tile.rows, tile.cols, from);
}

// What a line of a side costs a tile, in lines of the other side that it could be multiplied by instead:
// packed lines in f32 are read where they are.
int64_t cost_of(const Operand& side) {
  const bool in_place = side.weight && side.weight->packed && !side.columns;
  return in_place && side.weight->dtype == DType::kF32 ? 2 : 8;
}

// The tiles of `count` products.
TileGrid grid_of(int64_t count, int64_t rows, int64_t cols, const Segment& segment) {
  return tile_grid(count, rows, cols, segment.depth, {cost_of(segment.a), cost_of(segment.b)}, thread_count(),
                   kGrainTerms);
}

// Calls body(gemm, tile, product) for the tiles of `count` products with such segments, on all threads.
template <typename Body>
void for_tiles(int64_t count, int64_t rows, int64_t cols, int64_t depth, const Segment& segment,
               const Body& body) {
  if (count * rows * cols == 0) return;
  const TileGrid grid = grid_of(count, rows, cols, segment);
  const int64_t each = grid.count();
  // Of a few rows it is the reading of the other side that takes the time.
  const Tile first = grid.tile(0);
  const int64_t grain = 1 + kGrainTerms / (std::max(first.rows, kSmallM) * first.cols * (depth + 1));
  const GemmKernels& best = kernels().gemm;
  parallel_for(count * each, grain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) body(best, grid.tile(index % each), index / each);
  });
}

// The tiles of some regions, which are cut alike.
std::vector<Tile> tiles_of(std::span<const Region> regions, const Segment& segment) {
  const int64_t count = regions.size();
  int64_t rows = 0, cols = 0;
  for (const Region& region : regions) {
    rows += region.rows;
    cols = std::max(cols, region.cols);
  }
  TileGrid grid = grid_of(count, pieces(rows, count), cols, segment);
  std::vector<Tile> tiles;
  for (const Region& region : regions) {
    grid.rows = region.rows;
    grid.cols = region.cols;
    for (int64_t i = 0; i < grid.count(); ++i) {
      const Tile tile = grid.tile(i);
      tiles.push_back({region.row + tile.row, tile.rows, region.col + tile.col, tile.cols});
    }
  }
  return tiles;
}

// As for_tiles() for one product, on the calling thread.
template <typename Body>
void for_tiles_here(int64_t rows, int64_t cols, const Body& body) {
  const GemmKernels& best = kernels().gemm;
  for (int64_t col = 0; col < cols; col += kTile) {
    for (int64_t row = 0; row < rows; row += kTile) {
      body(best, {row, std::min(kTile, rows - row), col, std::min(kTile, cols - col)});
    }
  }
}

}  // namespace

Operand rows_of(const float* matrix, int64_t cols) { return {nullptr, false, matrix, cols}; }
Operand columns_of(const float* matrix, int64_t cols) { return {nullptr, true, matrix, cols}; }

Operand rows_of(const Weight& weight) {
  if (is_plain(weight)) return rows_of(static_cast<const float*>(weight.data), weight.cols);
  return {&weight, false, nullptr, 0};
}

Operand columns_of(const Weight& weight) {
  if (is_plain(weight)) return columns_of(static_cast<const float*>(weight.data), weight.cols);
  return {&weight, true, nullptr, 0};
}

Operand rows_of(const Patches& patches) {
  Operand operand{nullptr, false, nullptr, 0};
  operand.patches = &patches;
  return operand;
}

Operand columns_of(const Patches& patches) {
  Operand operand{nullptr, true, nullptr, 0};
  operand.patches = &patches;
  return operand;
}

Operand masked(Operand operand, const float* mask) {
  operand.mask = mask;
  return operand;
}

Operand scaled(Operand operand, const float* k_scale) {
  operand.k_scale = k_scale;
  return operand;
}

void product(int64_t rows, int64_t cols, std::initializer_list<Segment> segments, Store store, StoreBy by) {
  if (segments.size() == 1 && is_deep(rows, cols, *segments.begin())) {
    const Tile all{0, rows, 0, cols};
    add_deep(kernels().gemm, all, *segments.begin());
    return store_sums(kernels().gemm, all, by, store);
  }
  int64_t depth = 0;
  for (const Segment& segment : segments) depth += segment.depth;
  for_tiles(1, rows, cols, depth, *segments.begin(), [&](const GemmKernels& gemm, const Tile& tile, int64_t) {
    compute(gemm, tile, segments, by, store);
  });
}

void product_regions(std::span<const Region> regions, const Segment& segment, Store store) {
  if (regions.empty()) return;
  const std::vector<Tile> tiles = tiles_of(regions, segment);
  const int64_t count = tiles.size();
  int64_t terms = 0;
  for (const Tile& tile : tiles) terms += tile.rows * tile.cols * (segment.depth + 1);
  const GemmKernels& best = kernels().gemm;
  parallel_for(count, 1 + kGrainTerms * count / (terms + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) compute(best, tiles[i], {segment}, StoreBy::kRows, store);
  });
}

void product_tiles(int64_t rows, int64_t cols, const Segment& segment, TileStore store) {
  for_tiles(1, rows, cols, segment.depth, segment, [&](const GemmKernels& gemm, const Tile& tile, int64_t) {
    add_segments(gemm, tile, {segment});
    store(tile, workspace().sums);
  });
}

void products(int64_t count, int64_t rows, int64_t cols, FunctionRef<Segment(int64_t)> segment,
              BatchStore store) {
  if (count == 0) return;
  const Segment first = segment(0);
  for_tiles(count, rows, cols, first.depth, first,
            [&](const GemmKernels& gemm, const Tile& tile, int64_t at) {
              compute(gemm, tile, {segment(at)}, StoreBy::kRows,
                      [&](int64_t row, int64_t col, int64_t length, const float* sums) {
                        store(at, row, col, length, sums);
                      });
            });
}

void product_here(int64_t rows, int64_t cols, std::initializer_list<Segment> segments, Store store,
                  StoreBy by) {
  for_tiles_here(rows, cols, [&](const GemmKernels& gemm, const Tile& tile) {
    compute(gemm, tile, segments, by, store);
  });
}

void product_into(const Epilogue& to, int64_t rows, int64_t cols, const Segment& segment, StoreBy by) {
  if (by == StoreBy::kRows && is_deep(rows, cols, segment)) {
    add_deep(kernels().gemm, {0, rows, 0, cols}, segment);
    return apply_epilogue(workspace().sums, kTile, rows, cols, to);
  }
  for_tiles(1, rows, cols, segment.depth, segment, [&](const GemmKernels& gemm, const Tile& tile, int64_t) {
    compute_into(gemm, tile, segment, by, to);
  });
}

void products_into(int64_t count, int64_t rows, int64_t cols, FunctionRef<Segment(int64_t)> segment,
                   FunctionRef<Epilogue(int64_t)> to) {
  if (count == 0) return;
  const Segment first = segment(0);
  for_tiles(count, rows, cols, first.depth, first,
            [&](const GemmKernels& gemm, const Tile& tile, int64_t at) {
              compute_into(gemm, tile, segment(at), StoreBy::kRows, to(at));
            });
}

void product_into_here(const Epilogue& to, int64_t rows, int64_t cols, const Segment& segment, StoreBy by) {
  for_tiles_here(rows, cols, [&](const GemmKernels& gemm, const Tile& tile) {
    compute_into(gemm, tile, segment, by, to);
  });
}

}  // namespace spark::cpu
