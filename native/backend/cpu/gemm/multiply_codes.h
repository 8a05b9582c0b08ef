// multiply_codes.h: the codes of a panel in a block format as unsigned bytes, times rows of signed ones
// (backend/integer_rows.h). Included after block_groups.h and after
//   kCodeRows             rows whose sums stay in registers, beside those of kCodeVecs vectors of the panel
//   add_products<kWide>   (sum, bytes, row): sum + Σ of the products of the four bytes of each lane, which
//   are
//                         below 128 unless kWide, and the four signed ones of row
//
// A level is its byte less a zero: of the block, or kByteZero. The products of a run are summed exactly; runs
// are added with rising columns.
template <typename F>
constexpr bool kHasTable = !std::is_void_v<typename F::Levels>;
template <typename F>
constexpr int kByteZero = F::kSigned     ? 128
                          : kHasTable<F> ? -blocks::lowest_level<F>()
                                         : F::kZero;
template <typename F>
constexpr bool kWideBytes = F::kLow == 8 || kByteZero<F> > 64;
template <typename F>
constexpr int kCodeRun = F::kRun == 16 ? 16 : 32;

template <typename F>
struct ByteTable {
  alignas(16) uint8_t at[16];
  constexpr ByteTable() : at() {
    for (uint32_t code = 0; code < 16; ++code)
      at[code] = static_cast<uint8_t>(blocks::level_of<F>(code) + kByteZero<F>);
  }
};
template <typename F>
constexpr ByteTable<F> kByteTable;

// The bytes of four neighbouring columns of each row.
template <typename F>
inline Bits four_bytes(Bits low, Bits high) {
  constexpr uint32_t kOnes = 0x01010101;
  if constexpr (F::kSigned) return low ^ (0x80 * kOnes);
  if constexpr (F::kLow == 8) return low;
  Bits bytes = low & (((1u << F::kLow) - 1) * kOnes);
  if constexpr (kHasTable<F>) return lookup_bytes(bytes, kByteTable<F>.at);
  if constexpr (F::kHigh > 0) bytes |= (high & (((1u << F::kHigh) - 1) * kOnes)) << F::kLow;
  return bytes;
}

// A run of columns of a vector of rows, where it is packed.
template <typename F>
struct PackedRun {
  using Panel = BlockPanel<F>;
  GroupRows<F> rows;
  int64_t within;  // of its group
  Bits high;

  RunFactors factors() const { return rows.factors(within); }
  // Of columns col to col + 3 of the run.
  Bits bytes(int col) const {
    if constexpr (F::kAsStored) {
      return four_bytes<F>(F::codes(rows.stored(), static_cast<int>(within) + col), Bits{});
    } else {
      const Bits low =
          load_words(rows.part(Panel::kLowWords, within / Panel::kLowCols + col / Panel::kLowCols, 4));
      return four_bytes<F>(low >> static_cast<uint32_t>(col % Panel::kLowCols / 4 * F::kLow),
                           high >> static_cast<uint32_t>(col / 4 * F::kHigh));
    }
  }
};

// Bytes that are asked for before they are read, beyond those of the group.
constexpr int64_t kCodesAhead = 2048;

template <typename F>
struct PackedCodes {
  using Panel = BlockPanel<F>;
  const uint8_t* groups;

  PackedRun<F> run(int64_t col, int v) const {
    const int64_t within = col % Panel::kCols;
    const GroupRows<F> rows{groups + col / Panel::kCols * Panel::kBytes, v};
    Bits high{};
    if constexpr (F::kHigh > 0) {
      high = load_words(rows.part(Panel::kHighWords, within / Panel::kHighCols, 4)) >>
             static_cast<uint32_t>(within % Panel::kHighCols / 4 * F::kHigh);
    }
    return {rows, within, high};
  }
  // Asks for what comes a group after the run of column `col`: where the bits of codes lie in two places, the
  // parts of a group are streams that are too short to be foreseen.
  void prefetch(int64_t col) const {
    constexpr int64_t kRunBytes = Panel::kBytes * kCodeRun<F> / Panel::kCols;
    const uint8_t* ahead = groups + col * Panel::kBytes / Panel::kCols + Panel::kBytes + kCodesAhead;
    for (int64_t at = 0; at < kRunBytes; at += 64) __builtin_prefetch(ahead + at);
  }
};

// A chunk of kChunk columns, unpacked once for many rows.
template <typename F>
struct UnpackedCodes {
  static constexpr int64_t kRuns = kChunk / kCodeRun<F>;
  alignas(64) uint32_t words[kChunk / 4 * kPanelRows];
  alignas(64) float scales[kRuns * kPanelRows], offsets[kRuns * kPanelRows];
  alignas(64) uint32_t zeros[kRuns * kPanelRows];

  struct Run {
    const uint32_t *words, *zeros;
    const float *scales, *offsets;

    RunFactors factors() const {
      RunFactors run{load(scales), Vec{}, Bits{}};
      if constexpr (BlockPanel<F>::kHasOffset) run.offset = load(offsets);
      if constexpr (BlockPanel<F>::kHasZero) run.zero = load_words(zeros);
      return run;
    }
    Bits bytes(int col) const { return load_words(words + col / 4 * kPanelRows); }
  };
  Run run(int64_t col, int v) const {
    const int64_t at = col / kCodeRun<F> * kPanelRows + v * kWidth;
    return {words + col / 4 * kPanelRows + v * kWidth, zeros + at, scales + at, offsets + at};
  }

  void unpack(const PackedCodes<F>& from, int64_t col, int64_t count) {
    for (int64_t j = 0; j < count; j += kCodeRun<F>) {
      for (int v = 0; v < kPanelVecs; ++v) {
        const PackedRun<F> packed = from.run(col + j, v);
        const RunFactors factors = packed.factors();
        const int64_t at = j / kCodeRun<F> * kPanelRows + v * kWidth;
        store(scales + at, factors.scale);
        if constexpr (BlockPanel<F>::kHasOffset) store(offsets + at, factors.offset);
        if constexpr (BlockPanel<F>::kHasZero) store(zeros + at, factors.zero);
#pragma GCC unroll 8
        for (int c = 0; c < kCodeRun<F>; c += 4) {
          store(words + (j + c) / 4 * kPanelRows + v * kWidth, packed.bytes(c));
        }
      }
    }
  }
};

// The sums of M rows from `row` on with the vectors from `first` on, for `count` columns: those of x from
// `col` on, those of the codes from 0 on.
template <typename F, int M, int N, typename Codes>
void add_code_block(const Codes& codes, const IntegerRows& x, int64_t row, int first, int64_t col,
                    int64_t count, float* sums) {
  using Panel = BlockPanel<F>;
  constexpr int kRun = kCodeRun<F>;
  Vec total[M][N];
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) total[m][n] = load(sums + (row + m) * kPanelRows + (first + n) * kWidth);
  }
  for (int64_t j = 0; j < count; j += kRun) {
    if constexpr (M == 1 && F::kHigh > 0 && std::is_same_v<Codes, PackedCodes<F>>) {
      if (first == 0) codes.prefetch(j);
    }
    Bits dots[M][N];
    RunFactors factors[N];
    const auto run = [&](int n) __attribute__((always_inline)) { return codes.run(j, first + n); };
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) factors[n] = run(n).factors();
    const uint32_t* groups[M];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      groups[m] = x.groups + (row + m) * x.stride + (col + j) / 4;
      const auto x_sum = static_cast<uint32_t>(x.sums[(row + m) * x.sum_stride + (col + j) / kRun]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        if constexpr (Panel::kHasZero) {
          dots[m][n] = -factors[n].zero * x_sum;
        } else {
          dots[m][n] = Bits{} - static_cast<uint32_t>(kByteZero<F>) * x_sum;
        }
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < kRun; c += 4) {
      Bits bytes[N];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) bytes[n] = run(n).bytes(c);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
          dots[m][n] = add_products<kWideBytes<F>>(dots[m][n], bytes[n], groups[m][c / 4]);
        }
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const float x_scale = x.scales[(row + m) * x.scale_stride + (col + j) / kIntegerCols];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        total[m][n] = multiply_add(to_floats(dots[m][n]), factors[n].scale * splat(x_scale), total[m][n]);
        if constexpr (Panel::kHasOffset) {
          const auto x_sum = static_cast<float>(x.sums[(row + m) * x.sum_stride + (col + j) / kRun]);
          total[m][n] = multiply_add(factors[n].offset, splat(x_scale * x_sum), total[m][n]);
        }
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) store(sums + (row + m) * kPanelRows + (first + n) * kWidth, total[m][n]);
  }
}

template <typename F, int M, typename Codes>
void add_code_rows(int64_t m, const Codes& codes, const IntegerRows& x, int64_t row, int64_t col,
                   int64_t count, float* sums) {
  if constexpr (M > 1) {
    if (m < M) return add_code_rows<F, M - 1>(m, codes, x, row, col, count, sums);
  }
  for (int v = 0; v < kPanelVecs; v += kCodeVecs) {
    add_code_block<F, M, kCodeVecs>(codes, x, row, v, col, count, sums);
  }
}

template <typename F>
void multiply_code_panel(const Weight& weight, int64_t panel, const IntegerRows& x, float* sums) {
  const PackedCodes<F> packed{static_cast<const uint8_t*>(weight.data) +
                              panel * BlockPanel<F>::bytes(weight.cols)};
  for (int64_t i = 0; i < x.count * kPanelRows; i += kWidth) store(sums + i, Vec{});
  // The rows of a chunk, in blocks of much the same size.
  const auto add = [&](const auto& codes, int64_t col, int64_t count) {
    int64_t row = 0;
    for (int64_t blocks = (x.count + kCodeRows - 1) / kCodeRows; blocks > 0; --blocks) {
      const int64_t block = (x.count - row + blocks - 1) / blocks;
      add_code_rows<F, kCodeRows>(block, codes, x, row, col, count, sums);
      row += block;
    }
  };
  if (x.count <= 2 * kCodeRows) return add(packed, 0, weight.cols);
  UnpackedCodes<F> unpacked;
  for (int64_t col = 0; col < weight.cols; col += kChunk) {
    const int64_t count = smaller(kChunk, weight.cols - col);
    unpacked.unpack(packed, col, count);
    add(unpacked, col, count);
  }
}

// --- by format, of those that have integers ---

void multiply_codes(const Weight& weight, int64_t panel, const IntegerRows& x, float* sums) {
  switch (weight.dtype) {
#define SPARK_MULTIPLY(name, enumerator, Format)                                                            \
  case DType::enumerator:                                                                                   \
    if constexpr (blocks::kHasIntegers<Format>) return multiply_code_panel<Format>(weight, panel, x, sums); \
    break;
    SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_MULTIPLY)
#undef SPARK_MULTIPLY
    default:
      return;
  }
}
