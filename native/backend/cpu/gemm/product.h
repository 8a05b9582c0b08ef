// product.h: the one matrix product of the CPU backend: sums[m, n] = Σ_k a(m, k) · b(n, k), f32.
// Each side is a set of lines along K, whatever its layout or format; only small panels of it are ever
// decoded. Trap: the order of a sum is part of the contract (backend.h). K is cut into chunks of kChunk
// (gemm_kernels.h); in a chunk the terms are added in their order, starting at 0; then chunks and segments
// are, in theirs.
#pragma once

#include <initializer_list>
#include <span>

#include "backend/cpu/gemm/epilogue.h"
#include "backend/cpu/gemm/operand.h"
#include "core/function_ref.h"

namespace spark::cpu {

// Lines are the rows or the columns of a row-major matrix with `cols` columns.
Operand rows_of(const float* matrix, int64_t cols);
Operand columns_of(const float* matrix, int64_t cols);
Operand rows_of(const Weight& weight);
Operand columns_of(const Weight& weight);

Operand rows_of(const Patches& patches);
Operand columns_of(const Patches& patches);

Operand masked(Operand operand, const float* mask);
Operand scaled(Operand operand, const float* k_scale);

struct Segment {
  Operand a, b;
  int64_t depth;  // length of K
};

// Receives sums[row, col .. col + count), count <= kTile (gemm_kernels.h). Called once for each element, from
// several threads.
using Store = FunctionRef<void(int64_t row, int64_t col, int64_t count, const float* sums)>;

// By columns it receives sums[row .. row + count, col] as (col, row, count, sums).
enum class StoreBy { kRows, kColumns };

// All segments are summed. An empty K gives zeros.
void product(int64_t rows, int64_t cols, std::initializer_list<Segment> segments, Store store,
             StoreBy by = StoreBy::kRows);

// Sums of rows [row, row + rows) and columns [col, col + cols).
struct Region {
  int64_t row, rows, col, cols;
};

// As product(), of some regions of one segment. Where b is a packed weight, they begin at a multiple of
// kPanelRows.
void product_regions(std::span<const Region> regions, const Segment& segment, Store store);

// Receives the sums of a whole tile, rows of them kTile apart.
using TileStore = FunctionRef<void(const Region& tile, const float* sums)>;

// As product(), of one segment, a tile at a time.
void product_tiles(int64_t rows, int64_t cols, const Segment& segment, TileStore store);

// As product(), for `count` products of one shape.
using BatchStore =
    FunctionRef<void(int64_t product, int64_t row, int64_t col, int64_t count, const float* sums)>;
void products(int64_t count, int64_t rows, int64_t cols, FunctionRef<Segment(int64_t)> segment,
              BatchStore store);

// As product(), on the calling thread alone, for products that are themselves spread over threads.
void product_here(int64_t rows, int64_t cols, std::initializer_list<Segment> segments, Store store,
                  StoreBy by = StoreBy::kRows);

// The sums of one segment become what `to` says. By columns, columns of the product are rows of y.
void product_into(const Epilogue& to, int64_t rows, int64_t cols, const Segment& segment, StoreBy by);
void product_into_here(const Epilogue& to, int64_t rows, int64_t cols, const Segment& segment, StoreBy by);

// The same for `count` products of one shape, by rows.
void products_into(int64_t count, int64_t rows, int64_t cols, FunctionRef<Segment(int64_t)> segment,
                   FunctionRef<Epilogue(int64_t)> to);

// sums = x · Wᵀ of numbers rounded to bf16, for a machine that multiplies them (kernels().dot.bf16). A chunk
// is one chain of additions of two products each.
void product_bf16(int64_t rows, const float* x, const Weight& weight, Store store);

}  // namespace spark::cpu
