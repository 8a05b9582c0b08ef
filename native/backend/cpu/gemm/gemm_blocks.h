// gemm_blocks.h: weights in block formats (backend/block_formats.h), in rows and in panels (block_panels.h),
// decoded and multiplied by a few rows. Included by gemm_body.h.
//
// A decoded number is level · scale + offset, each operation rounded; it is multiplied like any other number,
// so that a sum is the same as that of the decoded weight.
constexpr int kRunCols = 16;  // the columns that are read together; runs are as long, or twice as long

inline Bits load_words(const uint8_t* from) {
  Bits words;
  __builtin_memcpy(&words, from, sizeof(words));
  return words;
}

using Integers = int32_t __attribute__((vector_size(sizeof(Bits))));

inline Vec to_floats(Bits numbers) { return __builtin_convertvector((Integers)numbers, Vec); }

inline Bits sign_extended(Bits bytes) { return (bytes ^ 0x80) - 0x80; }

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
  return to_floats(F::kZeroAt < 0 ? code - F::kZero : code - zero);
}

// What the columns of a run have in common.
struct RunFactors {
  Vec scale, offset;
  Bits zero;
};

// Vector v of the rows of a group.
template <typename F>
struct GroupRows {
  using Panel = BlockPanel<F>;
  const uint8_t* group;
  int v;

  const uint8_t* part(int64_t from, int64_t line, int64_t bytes) const {
    return group + from + (line * kPanelRows + v * kWidth) * bytes;
  }
  Vec halves(int64_t from, int64_t line) const {
    uint16_t codes[kWidth];
    __builtin_memcpy(codes, part(from, line, 2), sizeof(codes));
    return load_halves(codes);
  }
  RunFactors factors(int64_t col) const { return {scale(col), offset(col), zero(col)}; }
  Bits zero(int64_t col) const {
    if constexpr (!Panel::kHasZero) return Bits{};
    return load_codes(part(Panel::kMins, col / F::kElements, 1));
  }
  // Of the run that holds a column.
  Vec scale(int64_t col) const {
    const int64_t block = col / F::kElements;
    if constexpr (F::kScale == blocks::Scale::kExponent) {
      const Bits code = load_codes(part(0, block, 1));
      const Bits low = (Bits)(code < 2);
      return (Vec)((low & (0x200000 << (code & 1))) | (~low & ((code - 1) << 23)));
    } else if constexpr (F::kScale == blocks::Scale::kFloat) {
      return (Vec)load_words(part(0, block, 4));
    } else if constexpr (Panel::kTimes) {
      const Bits sub = load_codes(part(Panel::kSubs, col / F::kRun, 1));
      return halves(0, block) * to_floats(F::kOffset ? sub : sign_extended(sub));
    } else {
      return halves(0, block);
    }
  }
  Vec offset(int64_t col) const {
    if constexpr (!Panel::kHasOffset) return Vec{};
    Vec min = halves(Panel::kMins, col / F::kElements);
    if constexpr (Panel::kTimes) min *= to_floats(load_codes(part(Panel::kSubMins, col / F::kRun, 1)));
    return F::kOffset < 0 ? -min : min;
  }
  // Calls take(j, numbers of column col + j) for j < kRunCols; col is a multiple of that.
  template <typename Take>
  __attribute__((always_inline)) inline void columns(int64_t col, const RunFactors& run,
                                                     const Take& take) const {
    Bits high{};
    if constexpr (F::kHigh > 0) {
      high = load_words(part(Panel::kHighWords, col / Panel::kHighCols, 4)) >>
             static_cast<uint32_t>(col % Panel::kHighCols / 4 * F::kHigh);
    }
#pragma GCC unroll 4
    for (int first = 0; first < kRunCols; first += Panel::kLowCols) {
      const Bits low = load_words(part(Panel::kLowWords, (col + first) / Panel::kLowCols, 4));
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
};

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
    for (int at = first; i < end; ++i, ++at) {
      const uint32_t code = F::four(block, at & ~3) >> at % 4 * 8 & 0xFF;
      const float value = (blocks::level_of<F>(code) - zero) * scale;
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
      rows.columns(
          within, rows.factors(within), [&](int at, Vec values) __attribute__((always_inline)) {
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
  RunFactors run[N];
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
      group.columns(
          within, run[n], [&](int at, Vec values) __attribute__((always_inline)) {
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
