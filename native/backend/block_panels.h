// block_panels.h: where the parts of a block format lie in panels (backend/weight.h). The blocks of 32 rows
// at the same columns, kPanelBlocks of a row, lie together: for each block scales, then minima or zero
// points, for each run its factors of both, then words of codes for groups of columns. Within a part, rows
// lie next to each other. Formats of kAsStored have their parts as in the block, in steps of two bytes.
#pragma once

#include "backend/block_formats.h"
#include "backend/weight.h"

namespace spark {

template <typename F, bool = F::kAsStored>
struct BlockPanel {
  static constexpr bool kTimes = F::kScale == blocks::Scale::kTimes;
  static constexpr bool kHasOffset = F::kOffset != 0, kHasZero = F::kZeroAt >= 0;
  static constexpr int kCols = F::kElements * F::kPanelBlocks, kRuns = kCols / F::kRun;
  static constexpr int kScaleBytes = F::kScale == blocks::Scale::kExponent ? 1
                                     : F::kScale == blocks::Scale::kFloat  ? 4
                                                                           : 2;
  static constexpr int kMinBytes = kHasOffset      ? 2
                                   : F::kFloatZero ? 4
                                   : kHasZero      ? 1
                                                   : 0;  // of a minimum or a zero point
  // Columns whose low and high bits share a word: byte i of it has those of the columns 4s + i, from bit s ·
  // bits on.
  static constexpr int kLowCols = 32 / F::kLow, kHighCols = F::kHigh ? 32 / F::kHigh : kCols;

  static constexpr int64_t kMins = kScaleBytes * kPanelRows * F::kPanelBlocks;
  static constexpr int64_t kSubs = kMins + kMinBytes * kPanelRows * F::kPanelBlocks;
  static constexpr int64_t kSubMins = kSubs + (kTimes ? kRuns * kPanelRows : 0);
  static constexpr int64_t kLowWords = kSubMins + (kTimes && kHasOffset ? kRuns * kPanelRows : 0);
  static constexpr int64_t kHighWords = kLowWords + kCols / kLowCols * kPanelRows * 4;
  static constexpr int64_t kBytes = kHighWords + (F::kHigh ? kCols / kHighCols * kPanelRows * 4 : 0);

  // Groups of a row, the last one filled up with zeros, and bytes of a panel.
  SPARK_HOST_DEVICE static int64_t groups(int64_t cols) { return (cols + kCols - 1) / kCols; }
  SPARK_HOST_DEVICE static int64_t bytes(int64_t cols) { return groups(cols) * kBytes; }
};

template <typename F>
struct BlockPanel<F, true> {
  static constexpr bool kHasOffset = false, kHasZero = false;
  static constexpr int kCols = F::kElements;
  static constexpr int64_t kBytes = F::kBytes * kPanelRows;
  static_assert(F::kBytes % 2 == 0 && F::kPanelBlocks == 1);

  SPARK_HOST_DEVICE static int64_t bytes(int64_t cols) { return (cols + kCols - 1) / kCols * kBytes; }
};

// Bytes of a panel of a weight in a block format.
SPARK_HOST_DEVICE inline int64_t panel_bytes(DType dtype, int64_t cols) {
  switch (dtype) {
#define SPARK_PANEL_BYTES(name, enumerator, Format) \
  case DType::enumerator:                           \
    return BlockPanel<Format>::bytes(cols);
    SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_PANEL_BYTES)
#undef SPARK_PANEL_BYTES
    default:
      return 0;
  }
}

}  // namespace spark
