// gemm_blocks.h: weights in block formats (backend/block_formats.h), in rows and in panels (block_panels.h),
// decoded and multiplied by a few rows. Included by gemm_body.h.
//
// A decoded number is level · scale + offset, each operation rounded; it is multiplied like any other number,
// so that a sum is the same as that of the decoded weight.
constexpr int kRunCols = 16;  // the columns that are read together; runs are as long, or twice as long

// The levels of 16 codes as floats.
template <typename F>
struct LevelTable {
  alignas(64) float at[16];
  constexpr LevelTable() : at() {
    for (uint32_t code = 0; code < 16; ++code) at[code] = blocks::level_of<F>(code);
  }
};
template <typename F>
constexpr LevelTable<F> kLevelTable;

// Whether levels are looked up: where codes are indices of a table, and where that is as fast as computing.
template <typename F>
constexpr bool kLooksUp = F::kLow == 4 && F::kHigh == 0 && F::kZeroAt < 0 &&
                          (kWidth == 16 || !std::is_void_v<typename F::Levels>);

// The numbers of codes whose low bits are the lowest ones of `low`, their high bits those of `high`, less
// `zero`.
template <typename F>
inline Vec levels(Bits low, Bits high, Bits zero) {
  if constexpr (kLooksUp<F>) return lookup(low, kLevelTable<F>.at);
  if constexpr (F::kE4m3) return widen<E4M3>(low & 0xFF);
  if constexpr (F::kSigned) return to_floats(sign_extended(low & 0xFF));
  Bits code = low & ((1u << F::kLow) - 1);
  if constexpr (F::kHigh > 0) code |= (high & ((1u << F::kHigh) - 1)) << F::kLow;
  if constexpr (F::kFloatZero) return to_floats(code) - (Vec)zero;
  return to_floats(F::kZeroAt < 0 ? code - F::kZero : code - zero);
}

// Calls take(j, numbers of column col + j) for j < kRunCols of blocks as they are stored.
template <typename F, typename Take>
__attribute__((always_inline)) inline void stored_columns(const GroupRows<F>& rows, int64_t col,
                                                          const RunFactors& run, const Take& take) {
#pragma GCC unroll 4
  for (int first = 0; first < kRunCols; first += 4) {
    const Bits four = F::codes(rows.stored(), static_cast<int>(col) + first);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) take(first + j, levels<F>(four >> j * 8, Bits{}, Bits{}) * run.scale);
  }
}

// Calls take(j, numbers of column col + j) for j < kRunCols; col is a multiple of that.
template <typename F, typename Take>
__attribute__((always_inline)) inline void columns(const GroupRows<F>& rows, int64_t col,
                                                   const RunFactors& run, const Take& take) {
  using Panel = BlockPanel<F>;
  if constexpr (F::kAsStored) {
    return stored_columns(rows, col, run, take);
  } else {
    Bits high{};
    if constexpr (F::kHigh > 0) {
      high = load_words(rows.part(Panel::kHighWords, col / Panel::kHighCols, 4)) >>
             static_cast<uint32_t>(col % Panel::kHighCols / 4 * F::kHigh);
    }
#pragma GCC unroll 4
    for (int first = 0; first < kRunCols; first += Panel::kLowCols) {
      const Bits low = load_words(rows.part(Panel::kLowWords, (col + first) / Panel::kLowCols, 4));
#pragma GCC unroll 16
      for (int j = 0; j < Panel::kLowCols; ++j) {
        const int at = first + j;
        Vec values = levels<F>(low >> (j % 4 * 8 + j / 4 * F::kLow), high >> (at % 4 * 8 + at / 4 * F::kHigh),
                               run.zero);
        values *= run.scale;
        if constexpr (Panel::kHasOffset) values += run.offset;
        take(at, values);
      }
    }
  }
}

// --- decode ---

template <typename F>
void decode_block_row(const Weight& weight, int64_t row, int64_t col, int64_t count, float* dst) {
  const uint8_t* blocks =
      static_cast<const uint8_t*>(weight.data) + row * (weight.cols / F::kElements) * F::kBytes;
  for (int64_t i = 0; i < count;) {
    const uint8_t* block = blocks + (col + i) / F::kElements * F::kBytes;
    const int first = static_cast<int>((col + i) % F::kElements), run = first / F::kRun;
    const float scale = blocks::scale_of<F>(block, run), zero = blocks::zero_of<F>(block);
    const float offset = F::kOffset ? blocks::offset_of<F>(block, run) : 0;
    const int64_t end = smaller(count, i + F::kRun - first % F::kRun);
    uint32_t codes = F::four(block, first & ~3);
    for (int at = first; i < end; ++i, ++at) {
      if (at % 4 == 0) codes = F::four(block, at);
      const float value = (blocks::level_of<F>(codes >> at % 4 * 8 & 0xFF) - zero) * scale;
      dst[i] = F::kOffset ? value + offset : value;
    }
  }
}

// As decode_columns() of gemm_panels.h. Up to kRunCols columns are written.
template <typename F>
void decode_block_panel(const Weight& weight, int64_t panel, int64_t col, int64_t count, float* to) {
  using Panel = BlockPanel<F>;
  const uint8_t* groups = static_cast<const uint8_t*>(weight.data) + panel * Panel::bytes(weight.cols);
  for (int64_t j = 0; j < count; j += kRunCols) {
    const int64_t within = (col + j) % Panel::kCols;
    for (int v = 0; v < kPanelVecs; ++v) {
      const GroupRows<F> rows{groups + (col + j) / Panel::kCols * Panel::kBytes, v};
      columns(
          rows, within, rows.factors(within), [&](int at, Vec values) __attribute__((always_inline)) {
            store(to + (j + at) * kPanelRows + v * kWidth, values);
          });
    }
  }
}

// --- few rows ---

// N vectors from `first` on, of panels that lie `stride` bytes apart.
template <typename F, int M, int N>
void multiply_block_vecs(const uint8_t* panels, int64_t stride, const float* rows, int first, int64_t col,
                         int64_t count, float* sums) {
  using Panel = BlockPanel<F>;
  Vec total[M][N] = {};
  RunFactors run[N] = {};
  for (int64_t k = 0; k < count; k += kRunCols) {
    const int64_t within = (col + k) % Panel::kCols;
    const uint8_t* groups = panels + (col + k) / Panel::kCols * Panel::kBytes;
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const int v = first + n;
      const GroupRows<F> group{groups + v / kPanelVecs * stride, v % kPanelVecs};
      if (F::kRun == kRunCols || within % F::kRun == 0 || k == 0) {
        run[n] = group.factors(within);
      }
      columns(
          group, within, run[n], [&](int at, Vec values) __attribute__((always_inline)) {
#pragma GCC unroll 4
            for (int m = 0; m < M; ++m) {
              total[m][n] = multiply_add(splat(rows[m * kLine + k + at]), values, total[m][n]);
            }
          });
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      float* sum = sums + m * kTile + (first + n) * kWidth;
      store(sum, load(sum) + total[m][n]);
    }
  }
}

template <typename F, int M>
void multiply_block_rows(int64_t m, const float* rows, const Weight& weight, int64_t panel, int64_t lines,
                         int64_t col, int64_t count, float* sums) {
  if constexpr (M > 1) {
    if (m < M) return multiply_block_rows<F, M - 1>(m, rows, weight, panel, lines, col, count, sums);
  }
  const int64_t stride = BlockPanel<F>::bytes(weight.cols);
  const uint8_t* panels = static_cast<const uint8_t*>(weight.data) + panel * stride;
  const int vecs = lines > kPanelRows ? 2 * kPanelVecs : kPanelVecs;
  constexpr int kSide = M <= 2 ? 4 : 2;
  int v = 0;
  for (; v + kSide <= vecs; v += kSide) {
    multiply_block_vecs<F, M, kSide>(panels, stride, rows, v, col, count, sums);
  }
  if constexpr (kPanelVecs % kSide != 0) {
    for (; v < vecs; v += 2) multiply_block_vecs<F, M, 2>(panels, stride, rows, v, col, count, sums);
  }
}

// --- by format ---

void decode_block_row(const Weight& weight, int64_t row, int64_t col, int64_t count, float* dst) {
  switch (weight.dtype) {
#define SPARK_DECODE(name, enumerator, Format) \
  case DType::enumerator:                      \
    return decode_block_row<Format>(weight, row, col, count, dst);
    SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_DECODE)
#undef SPARK_DECODE
    default:
      return;  // no weight is stored so: napi/arguments.cc refuses it
  }
}

void decode_block_panel(const Weight& weight, int64_t panel, int64_t col, int64_t count, float* to) {
  switch (weight.dtype) {
#define SPARK_DECODE(name, enumerator, Format) \
  case DType::enumerator:                      \
    return decode_block_panel<Format>(weight, panel, col, count, to);
    SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_DECODE)
#undef SPARK_DECODE
    default:
      return;
  }
}

void multiply_block_panels(const float* rows, int64_t m, const Weight& weight, int64_t panel, int64_t lines,
                           int64_t col, int64_t count, float* sums) {
  switch (weight.dtype) {
#define SPARK_MULTIPLY(name, enumerator, Format) \
  case DType::enumerator:                        \
    return multiply_block_rows<Format, kSmallM>(m, rows, weight, panel, lines, col, count, sums);
    SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_MULTIPLY)
#undef SPARK_MULTIPLY
    default:
      return;
  }
}
