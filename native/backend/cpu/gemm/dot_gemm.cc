// dot_gemm.cc: tiling and packing of dot-product GEMM.
#include "backend/cpu/gemm/dot_gemm.h"

#include <algorithm>

#include "backend/cpu/grain.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/per_thread.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrainDots = 1 << 16;  // dot products worth waking a thread for

// Rows that stay in the first-level cache with all of their groups: each panel is read from its start to its
// end.
constexpr int64_t kFewRows = 8;

template <typename Sum>
struct Workspace {
  alignas(64) uint32_t panel[kDotGroups * kPanelRows];
  alignas(64) Sum sums[kTile * kTile];
};

struct Tile {
  int64_t row, rows, col, cols;
};

template <typename Sum>
void compute(const DotGemm<Sum>& product, MultiplyDots<Sum> multiply, const Tile& tile) {
  Workspace<Sum>& workspace = PerThread<Workspace<Sum>>::get();
  Sum* sums = workspace.sums;
  std::fill_n(sums, tile.rows * kTile, Sum{});
  const auto add = [&](int64_t group, int64_t col) {
    const int64_t count = std::min(kDotGroups, product.groups - group);
    multiply(product.x + tile.row * product.stride + group, product.stride, tile.rows,
             product.panel(tile.col + col, group, count, workspace.panel),
             std::min(kPanelRows, tile.cols - col), count, sums + col);
  };
  if (tile.rows <= kFewRows) {
    for (int64_t col = 0; col < tile.cols; col += kPanelRows) {
      for (int64_t group = 0; group < product.groups; group += kDotGroups) add(group, col);
    }
  } else {
    for (int64_t group = 0; group < product.groups; group += kDotGroups) {
      for (int64_t col = 0; col < tile.cols; col += kPanelRows) add(group, col);
    }
  }
  for (int64_t m = 0; m < tile.rows; ++m) product.store(tile.row + m, tile.col, tile.cols, sums + m * kTile);
}

int64_t pieces(int64_t length, int64_t size) { return (length + size - 1) / size; }

template <typename Sum>
void compute_all(const DotGemm<Sum>& product, MultiplyDots<Sum> multiply) {
  int64_t height = kTile, width = kTile;
  const auto tiles = [&] { return pieces(product.rows, height) * pieces(product.cols, width); };
  while (tiles() < 2 * thread_count() && width > 2 * kPanelRows) width /= 2;
  while (tiles() < 2 * thread_count() && height > 2 * kPanelRows) height /= 2;
  const int64_t work = std::min(product.rows, height) * std::min(product.cols, width) * (product.groups + 1);
  parallel_for(tiles(), grain_for(work, kGrainDots), [&](int64_t begin, int64_t end) {
    const int64_t row_tiles = pieces(product.rows, height);
    for (int64_t index = begin; index < end; ++index) {
      const int64_t row = index % row_tiles * height, col = index / row_tiles * width;
      compute(product, multiply,
              {row, std::min(height, product.rows - row), col, std::min(width, product.cols - col)});
    }
  });
}

}  // namespace

void dot_gemm(const DotGemm<float>& product, MultiplyDots<float> multiply) { compute_all(product, multiply); }

void dot_gemm(const DotGemm<int32_t>& product, MultiplyDots<int32_t> multiply) {
  compute_all(product, multiply);
}

void round_to_bf16(const float* from, int64_t count, uint16_t* to) {
  kernels().precision.cast(DType::kF32, DType::kBF16, false, false, from, to, count);
}

std::vector<uint32_t> round_rows(const float* x, int64_t rows, int64_t cols, int64_t stride) {
  std::vector<uint32_t> groups(rows * stride);
  parallel_for(rows, grain_for(cols, 1 << 16), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      round_to_bf16(x + row * cols, cols, reinterpret_cast<uint16_t*>(groups.data() + row * stride));
    }
  });
  return groups;
}

}  // namespace spark::cpu
