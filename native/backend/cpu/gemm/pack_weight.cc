// pack_weight.cc: packing of a weight into micro-panels.
#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/pack_blocks.h"
#include "backend/cpu/grain.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

template <typename Code>
constexpr int64_t kBlock = 64 / sizeof(Code);  // columns of a cache line

// pack_panel() for kBlock columns of a whole panel: sizes that the compiler knows.
template <int kGroup, typename Code>
void pack_block(const Code* from, int64_t cols, Code* to) {
  for (int64_t r = 0; r < kPanelRows; ++r) {
#pragma GCC unroll 16
    for (int64_t c = 0; c < kBlock<Code>; ++c) {
      to[(c / kGroup * kPanelRows + r) * kGroup + c % kGroup] = from[r * cols + c];
    }
  }
}

// to[c / kGroup][row][c % kGroup] for one panel of `rows` rows; what lies beyond them and beyond cols is 0.
template <int kGroup, typename Code>
void pack_panel(const Code* from, int64_t rows, int64_t cols, Code* to) {
  const int64_t whole = rows == kPanelRows ? cols / kBlock<Code> * kBlock<Code> : 0;
  for (int64_t first = 0; first < whole; first += kBlock<Code>) {
    pack_block<kGroup>(from + first, cols, to + first * kPanelRows);
  }
  for (int64_t first = whole; first < cols; first += kBlock<Code>) {
    const int64_t end = std::min(cols, first + kBlock<Code>);
    for (int64_t r = 0; r < kPanelRows; ++r) {
      for (int64_t c = first; c < (end + kGroup - 1) / kGroup * kGroup; ++c) {
        const bool inside = r < rows && c < cols;
        to[(c / kGroup * kPanelRows + r) * kGroup + c % kGroup] = inside ? from[r * cols + c] : Code{};
      }
    }
  }
}

template <int kGroup, typename Code>
void pack(int64_t rows, int64_t cols, const void* from, void* to) {
  const int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
  const int64_t panel_codes = (cols + kGroup - 1) / kGroup * kGroup * kPanelRows;
  parallel_for(panels, grain_for(panel_codes, 1 << 14), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t row = panel * kPanelRows;
      pack_panel<kGroup>(static_cast<const Code*>(from) + row * cols, std::min(kPanelRows, rows - row), cols,
                         static_cast<Code*>(to) + panel * panel_codes);
    }
  });
}

// Numbers of 16 bits whose neighbours in a row stay together: as numbers of 32 bits where that is possible.
void pack_pairs(int64_t rows, int64_t cols, const void* from, void* to) {
  const bool aligned = reinterpret_cast<uintptr_t>(from) % sizeof(uint32_t) == 0;
  if (cols % 2 == 0 && aligned) return pack<1, uint32_t>(rows, cols / 2, from, to);
  pack<2, uint16_t>(rows, cols, from, to);
}

// Panels of a matrix whose elements are there column by column. Some panels at a time: their elements of a
// column lie next to each other.
void pack_columns(int64_t rows, int64_t cols, const uint32_t* from, uint32_t* to) {
  constexpr int64_t kPanels = 16;
  const int64_t blocks = (rows + kPanels * kPanelRows - 1) / (kPanels * kPanelRows);
  parallel_for(blocks, grain_for(cols * kPanels * kPanelRows, 1 << 14), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kPanels * kPanelRows;
      const int64_t last = std::min(rows, first + kPanels * kPanelRows);
      for (int64_t c = 0; c < cols; ++c) {
        for (int64_t row = first; row < last; row += kPanelRows) {
          uint32_t* panel = to + row * cols + c * kPanelRows;
          const int64_t count = std::min(kPanelRows, rows - row);
          std::copy_n(from + c * rows + row, count, panel);
          std::fill_n(panel + count, kPanelRows - count, 0);
        }
      }
    }
  });
}

}  // namespace

void pack_weight(const PackWeightArgs& args) {
  if (args.transposed) {
    return pack_columns(args.weight.rows, args.weight.cols, static_cast<const uint32_t*>(args.weight.data),
                        static_cast<uint32_t*>(args.data));
  }
  const auto& [dtype, rows, cols, data, _, block_scale, __, ___] = args.weight;
  switch (dtype) {
    case DType::kF32:
      return pack<1, uint32_t>(rows, cols, data, args.data);
    case DType::kF16:
      return pack<1, uint16_t>(rows, cols, data, args.data);
    case DType::kBF16:
      return pack_pairs(rows, cols, data, args.data);
    case DType::kF8E4M3:
    case DType::kI8:
      return pack<1, uint8_t>(rows, cols, data, args.data);
    case DType::kNVFP4:
      pack<1, uint8_t>(rows, cols / 2, data, args.data);
      return pack<1, uint8_t>(rows, cols / 16, block_scale, args.block_scale);
    default:
      return pack_blocks(args);
  }
}

}  // namespace spark::cpu
