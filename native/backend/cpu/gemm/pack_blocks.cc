// pack_blocks.cc: packing of a weight in a block format into panels (block_panels.h).
#include "backend/cpu/gemm/pack_blocks.h"

#include <algorithm>
#include <cstring>

#include "backend/block_panels.h"
#include "backend/cpu/grain.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr uint32_t kOnes = 0x01010101;

// The codes of a block go to the words of row `row` of a group; `first` is the block's first column there.
template <typename F>
void pack_codes(const uint8_t* block, int first, uint8_t* group, int64_t row) {
  using Panel = BlockPanel<F>;
  constexpr uint32_t kLowMask = ((1ull << F::kLow) - 1) * kOnes, kHighMask = ((1u << F::kHigh) - 1) * kOnes;
  constexpr int kStep = F::kHigh > 0 ? std::max(Panel::kLowCols, Panel::kHighCols) : Panel::kLowCols;
  const auto put = [&](int64_t part, int word, uint32_t bits) {
    std::memcpy(group + part + (word * kPanelRows + row) * 4, &bits, sizeof bits);
  };
  for (int col = 0; col < F::kElements; col += kStep) {
    uint32_t fours[kStep / 4];
    for (int j = 0; j < kStep; j += 4) fours[j / 4] = F::four(block, col + j);
    for (int at = 0; at < kStep; at += Panel::kLowCols) {
      uint32_t word = 0;
      for (int j = 0; j < Panel::kLowCols; j += 4) {
        word |= (fours[(at + j) / 4] & kLowMask) << j / 4 * F::kLow;
      }
      put(Panel::kLowWords, (first + col + at) / Panel::kLowCols, word);
    }
    if constexpr (F::kHigh > 0) {
      for (int at = 0; at < kStep; at += Panel::kHighCols) {
        uint32_t word = 0;
        for (int j = 0; j < Panel::kHighCols; j += 4) {
          word |= (fours[(at + j) / 4] >> F::kLow & kHighMask) << j / 4 * F::kHigh;
        }
        put(Panel::kHighWords, (first + col + at) / Panel::kHighCols, word);
      }
    }
  }
}

// The parts of block `index` of a group, of row `row`.
template <typename F>
void pack_parts(const uint8_t* block, int index, uint8_t* group, int64_t row) {
  using Panel = BlockPanel<F>;
  constexpr int64_t kBytes = Panel::kScaleBytes;
  std::memcpy(group + (index * kPanelRows + row) * kBytes, block + F::kScaleAt, kBytes);
  if constexpr (Panel::kMinBytes > 0) {
    constexpr int kAt = Panel::kHasZero ? F::kZeroAt : F::kMinAt;
    std::memcpy(group + Panel::kMins + (index * kPanelRows + row) * Panel::kMinBytes, block + kAt,
                Panel::kMinBytes);
  }
  if constexpr (Panel::kTimes) {
    for (int run = 0; run < F::kElements / F::kRun; ++run) {
      const int64_t at = run * kPanelRows + row;
      group[Panel::kSubs + at] = static_cast<uint8_t>(F::sub(block, run));
      if constexpr (Panel::kHasOffset) {
        group[Panel::kSubMins + at] = static_cast<uint8_t>(F::sub_min(block, run));
      }
    }
  }
  pack_codes<F>(block, index * F::kElements, group, row);
}

// Block `index` of a group, of row `row`.
template <typename F>
void pack_block(const uint8_t* block, int index, uint8_t* group, int64_t row) {
  if constexpr (F::kAsStored) {
    for (int at = 0; at < F::kBytes; at += 2) std::memcpy(group + at * kPanelRows + row * 2, block + at, 2);
  } else {
    pack_parts<F>(block, index, group, row);
  }
}

template <typename F>
void pack_panels(const PackWeightArgs& args) {
  using Panel = BlockPanel<F>;
  const Weight& weight = args.weight;
  const int64_t panels = (weight.rows + kPanelRows - 1) / kPanelRows;
  const int64_t bytes = Panel::bytes(weight.cols), blocks = weight.cols / F::kElements;
  parallel_for(panels, grain_for(bytes, 1 << 13), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      uint8_t* to = static_cast<uint8_t*>(args.data) + panel * bytes;
      const int64_t first = panel * kPanelRows, rows = std::min(kPanelRows, weight.rows - first);
      if (rows < kPanelRows || blocks % F::kPanelBlocks) std::memset(to, 0, static_cast<size_t>(bytes));
      for (int64_t at = 0; at < blocks; ++at) {
        uint8_t* group = to + at / F::kPanelBlocks * Panel::kBytes;
        for (int64_t row = 0; row < rows; ++row) {
          const auto* from = static_cast<const uint8_t*>(weight.data);
          pack_block<F>(from + ((first + row) * blocks + at) * F::kBytes, at % F::kPanelBlocks, group, row);
        }
      }
    }
  });
}

}  // namespace

void pack_blocks(const PackWeightArgs& args) {
  switch (args.weight.dtype) {
#define SPARK_PACK(name, enumerator, Format) \
  case DType::enumerator:                    \
    return pack_panels<Format>(args);
    SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_PACK)
#undef SPARK_PACK
    default:
      return;  // another format
  }
}

}  // namespace spark::cpu
