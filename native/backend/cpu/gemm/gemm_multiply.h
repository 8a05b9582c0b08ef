// gemm_multiply.h: the multiply of a matrix product, in blocks of sums that stay in registers. Included by
// gemm_body.h.
//
// A left side has at(m, k) and from(row), itself from a row on; a right side at(k, n), vector n of its
// columns at k, and from(col). ahead(k) asks for a part of what comes after it: weights come from memory, and
// a burst of requests in front would stall. A right side does so for the first block of rows; again() is what
// the blocks after it read, for which it would only evict what they need.

struct LeftLines {
  const float* data;

  void ahead(int64_t) const {}
  float at(int m, int64_t k) const { return data[m * kLine + k]; }
  LeftLines from(int64_t row) const { return {data + row * kLine}; }
};

struct LeftPanel {
  const float* data;
  int64_t next;  // from a panel to the next one

  // Where a panel is read once for each block of columns, it would evict them.
  void ahead(int64_t k) const {
    if constexpr (kVecs * kWidth == kPanelRows) __builtin_prefetch(data + next + k * kPanelRows);
  }
  float at(int m, int64_t k) const { return data[k * kPanelRows + m]; }
  LeftPanel from(int64_t row) const { return {data + row, next}; }
};

struct PackedPanel {
  const float* data;

  template <int>
  void ahead(int64_t) const {}
  Vec at(int64_t k, int n) const { return load(data + k * kPanelRows + n * kWidth); }
  PackedPanel again() const { return *this; }
  PackedPanel from(int64_t col) const { return {data + col}; }
};

struct WeightPanel {
  const float* data;
  int64_t next;

  template <int N>
  void ahead(int64_t k) const {
#pragma GCC unroll 2
    for (int64_t j = 0; j < N * kWidth; j += kVector) __builtin_prefetch(data + next + k * kPanelRows + j);
  }
  Vec at(int64_t k, int n) const { return load(data + k * kPanelRows + n * kWidth); }
  PackedPanel again() const { return {data}; }
  WeightPanel from(int64_t col) const { return {data + col, next}; }
};

// Rows of patches, of which the columns lie behind each other.
struct Lines {
  const float* data;
  const int64_t* offset;

  template <int>
  void ahead(int64_t k) const {
    prefetch_panel(data + offset[k] + kPanelRows);
  }
  Vec at(int64_t k, int n) const { return load(data + offset[k] + n * kWidth); }
  Lines again() const { return *this; }
  Lines from(int64_t col) const { return {data + col, offset}; }
};

// A target has take(total), for the vectors of some rows, and from(row, col). What takes a block is inlined
// and unrolled, so that the block never leaves its registers.
#define SPARK_TAKES __attribute__((always_inline)) inline

// total[m][n] = change(total[m][n], m, n)
template <int M, int N, typename Change>
SPARK_TAKES void for_block(Vec (&total)[M][N], const Change& change) {
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) total[m][n] = change(total[m][n], m, n);
  }
}

struct Adding {
  float* sums;

  template <int M, int N>
  SPARK_TAKES void take(Vec (&total)[M][N]) const {
    for_block(
        total, [&](Vec value, int m, int n) __attribute__((always_inline)) {
          float* sum = sums + m * kTile + n * kWidth;
          store(sum, load(sum) + value);
          return value;
        });
  }
  Adding from(int64_t row, int64_t col) const { return {sums + row * kTile + col}; }
};

// What sums become whose first one is that of to.y; `count` of the vector are there.
inline void store_vector(Vec sums, int64_t row, int64_t col, int64_t count, const Epilogue& to) {
  const int64_t offset = row * to.stride + col;
  if (to.bias && to.bias_of_columns) {
    sums += load_some(to.bias + col, count);
  } else {
    sums += splat(to.bias ? to.bias[row] : 0);
  }
  if (to.residual && to.residual_first) sums += load_some(to.residual + offset, count);
  sums = bounded(sums, bounds_of(to.activation));
  if (to.residual && !to.residual_first) sums += load_some(to.residual + offset, count);
  store_some(to.y + offset, sums, count);
}

void store_rows(const float* sums, int64_t pitch, int64_t rows, int64_t cols, const Epilogue& to) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; j += kWidth) {
      store_vector(load_some(sums + i * pitch + j, cols - j), i, j, cols - j, to);
    }
  }
}

struct Storing {
  const float* sums;  // of the chunks before; null: none
  int64_t lines;      // columns that there are
  Epilogue to;

  template <int M, int N>
  SPARK_TAKES void take(Vec (&total)[M][N]) const {
    const auto add = [&](const float* rows, int64_t stride) __attribute__((always_inline)) {
      for_block(
          total, [&](Vec value, int m, int n)
                     __attribute__((always_inline)) { return load(rows + m * stride + n * kWidth) + value; });
    };
    if (sums) add(sums, kTile);
    if (lines < N * kWidth) return take_some(total);
    if (to.bias && to.bias_of_columns) {
      for_block(
          total, [&](Vec value, int, int n)
                     __attribute__((always_inline)) { return value + load(to.bias + n * kWidth); });
    } else if (to.bias) {
      for_block(
          total, [&](Vec value, int m, int)
                     __attribute__((always_inline)) { return value + splat(to.bias[m]); });
    } else {
      for_block(
          total, [](Vec value, int, int) __attribute__((always_inline)) { return value + Vec{}; });
    }
    if (to.residual && to.residual_first) add(to.residual, to.stride);
    if (to.activation != Activation::kNone) {
      const Bounds bounds = bounds_of(to.activation);
      for_block(
          total, [&](Vec value, int, int) __attribute__((always_inline)) { return bounded(value, bounds); });
    }
    if (to.residual && !to.residual_first) add(to.residual, to.stride);
    for_block(
        total, [&](Vec value, int m, int n) __attribute__((always_inline)) {
          store(to.y + m * to.stride + n * kWidth, value);
          return value;
        });
  }
  // Where the last vector is cut.
  template <int M, int N>
  SPARK_TAKES void take_some(Vec (&total)[M][N]) const {
    float values[M * N * kWidth];
    for_block(
        total, [&](Vec value, int m, int n) __attribute__((always_inline)) {
          store(values + (m * N + n) * kWidth, value);
          return value;
        });
    store_rows(values, N * kWidth, M, lines, to);
  }
  Storing from(int64_t row, int64_t col) const {
    Storing target = *this;
    const int64_t offset = row * to.stride + col;
    if (sums) target.sums += row * kTile + col;
    if (to.bias) target.to.bias += to.bias_of_columns ? col : row;
    if (to.residual) target.to.residual += offset;
    target.to.y += offset;
    target.lines -= col;
    return target;
  }
};

template <int M, int N, typename Rows, typename Right, typename Target>
void multiply_block(const Rows& rows, const Right& side, int64_t count, const Target& target) {
  Vec total[M][N] = {};
#pragma GCC unroll 2
  for (int64_t k = 0; k < count; ++k) {
    rows.ahead(k);
    side.template ahead<N>(k);
    Vec right[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) right[n] = side.at(k, n);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const Vec left = splat(rows.at(m, k));
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) total[m][n] = multiply_add(left, right[n], total[m][n]);
    }
  }
  target.take(total);
}

template <int M, int N, typename Rows, typename Right, typename Target>
void multiply_rows(int64_t m, const Rows& rows, const Right& side, int64_t count, const Target& target) {
  if (m == M) return multiply_block<M, N>(rows, side, count, target);
  if constexpr (M > 1) multiply_rows<M - 1, N>(m, rows, side, count, target);
}

// Rows are shared out evenly: a last block of one row would cost as much time as a full one.
template <int N, typename Rows, typename Right, typename Target>
void multiply_left(const Rows& rows, const Right& side, int64_t m, int64_t count, const Target& target) {
  const int64_t blocks = (m + kRows - 1) / kRows;
  if (blocks == 0) return;
  const int64_t block = (m + blocks - 1) / blocks;
  multiply_rows<kRows, N>(block, rows, side, count, target);
  multiply_left<N>(rows.from(block), side.again(), m - block, count, target.from(block, 0));
}

template <int N, typename Right, typename Target>
void multiply_lefts(const Left& left, const Right& side, int64_t m, int64_t count, const Target& target) {
  if (left.panel == 0) return multiply_left<N>(LeftLines{left.data}, side, m, count, target);
  for (int64_t row = 0; row < m; row += kPanelRows) {
    const LeftPanel rows{left.data + row / kPanelRows * left.panel, left.panel};
    multiply_left<N>(rows, side, smaller(kPanelRows, m - row), count, target.from(row, 0));
  }
}

// Columns of a block stay in the first cache while all rows are multiplied by them.
template <int N, typename Right, typename Target>
void multiply_cols(const Left& left, Right side, int64_t m, int64_t vecs, int64_t count, Target target) {
  for (; vecs >= N; vecs -= N) {
    multiply_lefts<N>(left, side, m, count, target);
    side = side.from(N * kWidth);
    target = target.from(0, N * kWidth);
  }
  if constexpr (N > 1) {
    if (vecs > 0) multiply_cols<N - 1>(left, side, m, vecs, count, target);
  }
}

template <typename Right, typename Target>
void multiply_right(const Left& left, const Right& side, int64_t m, int64_t n, int64_t count,
                    const Target& target) {
  multiply_cols<kVecs>(left, side, m, (n + kWidth - 1) / kWidth, count, target);
}

#undef SPARK_TAKES

// --- few rows: lines of the right side are transposed in registers instead of being packed across ---

// total[m][n] += Σ rows[m * kLine + i] · block[i]
template <int M>
inline void add_terms(const float* rows, const Vec (&block)[kWidth], int64_t terms, Vec (&total)[M][2],
                      int n) {
#pragma GCC unroll 16
  for (int64_t i = 0; i < terms; ++i) {
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) total[m][n] = multiply_add(splat(rows[m * kLine + i]), block[i], total[m][n]);
  }
}

// M rows by two vectors of lines. Beyond `count` and beyond the last line the panel holds anything.
template <int M>
void multiply_lines(const float* rows, const float* lines, int64_t count, float* sums) {
  Vec total[M][2] = {};
  for (int64_t k = 0; k < count; k += kWidth) {
#pragma GCC unroll 2
    for (int n = 0; n < 2; ++n) {
      Vec block[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) block[i] = load(lines + (n * kWidth + i) * kLine + k);
      transpose(block);
      if (count - k >= kWidth) {
        add_terms<M>(rows + k, block, kWidth, total, n);
      } else {
        add_terms<M>(rows + k, block, count - k, total, n);
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < 2; ++n) {
      float* sum = sums + m * kTile + n * kWidth;
      store(sum, load(sum) + total[m][n]);
    }
  }
}

template <int M>
void multiply_few(int64_t m, const float* rows, const float* lines, int64_t count, float* sums) {
  if (m == M) return multiply_lines<M>(rows, lines, count, sums);
  if constexpr (M > 1) multiply_few<M - 1>(m, rows, lines, count, sums);
}

// --- any operands ---

constexpr int64_t kDirectRows = 3 * kRows;  // up to so many rows read patches where they lie

// Where the columns [line, line + lines) of a row of patches begin, if they lie behind each other and whole
// vectors of them can be read; else null.
const float* run_of(const Patches& patches, int64_t line, int64_t lines) {
  const int64_t vectors = (lines + kWidth - 1) / kWidth * kWidth, needed = patches.slack ? lines : vectors;
  if (line + needed <= patches.size[3]) return patches.data + line;  // of the first line
  const int64_t x = line % patches.size[3];
  if (x + needed > patches.size[3]) return nullptr;
  const float* data = patches.data + x;
  line /= patches.size[3];
  for (int axis = 2; axis >= 0; --axis) {
    data += line % patches.size[axis] * patches.pitch[axis];
    line /= patches.size[axis];
  }
  return data;
}

template <typename Target>
void multiply_packing(const Left& left, int64_t m, const Operand& b, const Block& block, float* buffer,
                      const Target& target) {
  const auto& [line, lines, k, count] = block;
  if (b.patches && b.columns && m <= kDirectRows) {
    const float* data = run_of(*b.patches, line, lines);
    if (data) return multiply_right(left, Lines{data, b.patches->offset + k}, m, lines, count, target);
  }
  pack_panel(b, block, buffer);
  multiply_right(left, PackedPanel{buffer}, m, lines, count, target);
}

// Whether lines of a side are read in panels where they are.
bool in_panels(const Operand& b) { return is_packed(b) && !b.columns && b.weight->dtype == DType::kF32; }

WeightPanel panel_of(const Operand& b, int64_t line, int64_t k) {
  const int64_t next = b.weight->cols * kPanelRows;
  return {static_cast<const float*>(b.weight->data) + line / kPanelRows * next + k * kPanelRows, next};
}

void multiply(const Left& left, int64_t m, const Operand& b, const Block& block, float* buffer, float* sums) {
  const auto& [line, lines, k, count] = block;
  const bool few = m <= kSmallM && left.panel == 0;
  if (is_packed(b) && !b.columns) {
    if (few) return multiply_panels(left.data, m, *b.weight, line / kPanelRows, lines, k, count, sums);
    if (in_panels(b)) return multiply_right(left, panel_of(b, line, k), m, lines, count, Adding{sums});
  } else if (few && !b.columns) {
    pack_straight<kLine>(b, line, lines, k, count, buffer);
    for (int64_t n = 0; n < lines; n += 2 * kWidth) {
      multiply_few<kSmallM>(m, left.data, buffer + n * kLine, count, sums + n);
    }
    return;
  }
  multiply_packing(left, m, b, block, buffer, Adding{sums});
}

void multiply_store(const Left& left, int64_t m, const Operand& b, const Block& block, float* buffer,
                    const float* sums, const Epilogue& to) {
  const auto& [line, lines, k, count] = block;
  const Storing target{sums, lines, to};
  if (in_panels(b)) return multiply_right(left, panel_of(b, line, k), m, lines, count, target);
  multiply_packing(left, m, b, block, buffer, target);
}
