// gemm_panels.h: the panels of a packed weight (backend.h), decoded and multiplied by a few rows. Included by
// gemm_body.h.
//
// A reader gives vectors of one format; vector v is lane v % kPanelVecs of panel v / kPanelVecs. What it
// needs:
//   kStep              columns that are read together
//   seek(col)          called before the columns [col, col + 16) are read
//   read(col, v, to)   to[s] = column col + s, vector v, for s < kStep
constexpr int64_t kBlock = 16;  // columns that share a scale in NVFP4
constexpr int kMaxVecs = 4;     // vectors that are read side by side

struct FloatReader {
  static constexpr int kStep = 1;
  const float* data;
  int64_t panel_stride;

  FloatReader(const Weight& weight, int64_t panel, int64_t)
      : data(static_cast<const float*>(weight.data) + panel * weight.cols * kPanelRows),
        panel_stride(weight.cols * kPanelRows) {}
  void seek(int64_t) {}
  void read(int64_t col, int v, Vec (&to)[1]) const {
    to[0] = load(data + v / kPanelVecs * panel_stride + col * kPanelRows + v % kPanelVecs * kWidth);
  }
};

// A pair of columns lies in one 32-bit lane.
struct PairReader {
  static constexpr int kStep = 2;
  const uint32_t* data;
  int64_t panel_stride;

  PairReader(const Weight& weight, int64_t panel, int64_t)
      : data(static_cast<const uint32_t*>(weight.data) + panel * ((weight.cols + 1) / 2) * kPanelRows),
        panel_stride((weight.cols + 1) / 2 * kPanelRows) {}
  void seek(int64_t) {}
  void read(int64_t col, int v, Vec (&to)[2]) const {
    Bits pair;
    __builtin_memcpy(&pair,
                     data + v / kPanelVecs * panel_stride + col / 2 * kPanelRows + v % kPanelVecs * kWidth,
                     sizeof(pair));
    to[0] = (Vec)(pair << 16);
    to[1] = (Vec)(pair & 0xFFFF0000);
  }
};

inline Vec load_integers(const uint8_t* codes) {
  using Integers = int32_t __attribute__((vector_size(sizeof(Bits))));
  return __builtin_convertvector((Integers)(load_codes(codes) ^ 0x80) - 0x80, Vec);
}

// A code for each element, with a scale for each row where kScaled.
template <typename Code, Vec (*kLoad)(const Code*), bool kScaled>
struct CodeReader {
  static constexpr int kStep = 1;
  const Code* data;
  int64_t panel_stride;
  Vec scale[kSmallN / kWidth];

  // `vecs` vectors from the start of `panel` will be read.
  CodeReader(const Weight& weight, int64_t panel, int64_t vecs)
      : data(static_cast<const Code*>(weight.data) + panel * weight.cols * kPanelRows),
        panel_stride(weight.cols * kPanelRows) {
    if constexpr (!kScaled) return;
    for (int64_t v = 0; v < vecs; ++v) {
      float factors[kWidth] = {};
      const int64_t row = panel * kPanelRows + v * kWidth;
      for (int64_t i = 0; i < smaller(kWidth, weight.rows - row); ++i) factors[i] = weight.row_scale[row + i];
      scale[v] = load(factors);
    }
  }
  void seek(int64_t) {}
  void read(int64_t col, int v, Vec (&to)[1]) const {
    const int64_t at = v / kPanelVecs * panel_stride + col * kPanelRows + v % kPanelVecs * kWidth;
    to[0] = kLoad(data + at);
    if constexpr (kScaled) to[0] *= scale[v];
  }
};

struct Nvfp4Reader {
  static constexpr int kStep = 2;
  const uint8_t *data, *block_scale;
  int64_t cols, vecs;
  float tensor_scale;
  Vec step[kSmallN / kWidth];

  Nvfp4Reader(const Weight& weight, int64_t panel, int64_t vecs)
      : data(static_cast<const uint8_t*>(weight.data) + panel * (weight.cols / 2) * kPanelRows),
        block_scale(weight.block_scale + panel * (weight.cols / kBlock) * kPanelRows),
        cols(weight.cols),
        vecs(vecs),
        tensor_scale(weight.tensor_scale) {}
  void seek(int64_t col) {
    for (int v = 0; v < vecs; ++v) {
      const int64_t block = v / kPanelVecs * (cols / kBlock) + col / kBlock;
      step[v] = load_values<E4M3>(block_scale + block * kPanelRows + v % kPanelVecs * kWidth) * tensor_scale;
    }
  }
  void read(int64_t col, int v, Vec (&to)[2]) const {
    const int64_t pair = v / kPanelVecs * (cols / 2) + col / 2;
    const Bits codes = load_codes(data + pair * kPanelRows + v % kPanelVecs * kWidth);
    to[0] = lookup_e2m1(codes & 15) * step[v];
    to[1] = lookup_e2m1(codes >> 4) * step[v];
  }
};

using HalfReader = CodeReader<uint16_t, load_values<F16>, false>;
using Fp8Reader = CodeReader<uint8_t, load_values<E4M3>, true>;
using IntegerReader = CodeReader<uint8_t, load_integers, true>;

// --- decode ---

// to[j * kPanelRows + i] = element (i, col + j) of a panel for j < count; count is rounded up to kStep. col
// is a multiple of kBlock.
template <typename Reader>
void decode_columns(Reader reader, int64_t col, int64_t count, float* to) {
  for (int64_t j = 0; j < count; j += Reader::kStep) {
    if (j % kBlock == 0) reader.seek(col + j);
#pragma GCC unroll 8
    for (int v = 0; v < kPanelVecs; ++v) {
      Vec values[Reader::kStep];
      reader.read(col + j, v, values);
#pragma GCC unroll 2
      for (int s = 0; s < Reader::kStep; ++s) store(to + (j + s) * kPanelRows + v * kWidth, values[s]);
    }
  }
}

void decode_panel(const Weight& weight, int64_t panel, int64_t col, int64_t count, float* to) {
  switch (weight.dtype) {
    case DType::kF32:
      return decode_columns(FloatReader(weight, panel, kPanelVecs), col, count, to);
    case DType::kF16:
      return decode_columns(HalfReader(weight, panel, kPanelVecs), col, count, to);
    case DType::kBF16:
      return decode_columns(PairReader(weight, panel, kPanelVecs), col, count, to);
    case DType::kF8E4M3:
      return decode_columns(Fp8Reader(weight, panel, kPanelVecs), col, count, to);
    case DType::kI8:
      return decode_columns(IntegerReader(weight, panel, kPanelVecs), col, count, to);
    case DType::kNVFP4:
      return decode_columns(Nvfp4Reader(weight, panel, kPanelVecs), col, count, to);
    default:
      return decode_block_panel(weight, panel, col, count, to);
  }
}

// --- few rows: decoded in registers ---

// total[m][n] += Σ rows[m * kLine + j] · column col + j of vector first + n, for j < terms <= kStep
template <typename Reader, int M, int N>
inline void add_columns(const Reader& reader, const float* rows, int64_t col, int first, int terms,
                        Vec (&total)[M][N]) {
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    Vec values[Reader::kStep];
    reader.read(col, first + n, values);
#pragma GCC unroll 2
    for (int s = 0; s < terms; ++s) {
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
        total[m][n] = multiply_add(splat(rows[m * kLine + s]), values[s], total[m][n]);
      }
    }
  }
}

template <typename Reader, int M, int N>
void multiply_vecs(Reader& reader, const float* rows, int first, int64_t col, int64_t count, float* sums) {
  constexpr int kStep = Reader::kStep;
  Vec total[M][N] = {};
  for (int64_t block = 0; block < count; block += kBlock) {
    reader.seek(col + block);
    if (count - block >= kBlock) {
#pragma GCC unroll 16
      for (int64_t j = block; j < block + kBlock; j += kStep) {
        add_columns<Reader, M, N>(reader, rows + j, col + j, first, kStep, total);
      }
      continue;
    }
    for (int64_t j = block; j < count; j += kStep) {
      add_columns<Reader, M, N>(reader, rows + j, col + j, first, smaller(kStep, count - j), total);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      float* sum = sums + m * kTile + (first + n) * kWidth;
      store(sum, load(sum) + total[m][n]);
    }
  }
}

// The vectors from `first` to `vecs`, as many side by side as there are: N, then half of that.
template <typename Reader, int M, int N>
void multiply_side_by_side(Reader& reader, const float* rows, int first, int vecs, int64_t col, int64_t count,
                           float* sums) {
  for (; first + N <= vecs; first += N) multiply_vecs<Reader, M, N>(reader, rows, first, col, count, sums);
  if constexpr (N > 1) {
    multiply_side_by_side<Reader, M, N / 2>(reader, rows, first, vecs, col, count, sums);
  }
}

// Few sums leave registers for many vectors, whose additions then overlap.
template <typename Reader, int M>
void multiply_reader(const float* rows, const Weight& weight, int64_t panel, int64_t lines, int64_t col,
                     int64_t count, float* sums) {
  const int vecs = static_cast<int>((lines + kWidth - 1) / kWidth);
  Reader reader(weight, panel, vecs);
  multiply_side_by_side<Reader, M, M <= 2 ? kMaxVecs : 2>(reader, rows, 0, vecs, col, count, sums);
}

template <typename Reader, int M = kSmallM>
void multiply_few_rows(int64_t m, const float* rows, const Weight& weight, int64_t panel, int64_t lines,
                       int64_t col, int64_t count, float* sums) {
  if (m == M) return multiply_reader<Reader, M>(rows, weight, panel, lines, col, count, sums);
  if constexpr (M > 1) multiply_few_rows<Reader, M - 1>(m, rows, weight, panel, lines, col, count, sums);
}

// As `multiply` of gemm_kernels.h, for lines <= kSmallN from the start of `panel` and m <= kSmallM.
void multiply_panels(const float* rows, int64_t m, const Weight& weight, int64_t panel, int64_t lines,
                     int64_t col, int64_t count, float* sums) {
  switch (weight.dtype) {
    case DType::kF32:
      return multiply_few_rows<FloatReader>(m, rows, weight, panel, lines, col, count, sums);
    case DType::kF16:
      return multiply_few_rows<HalfReader>(m, rows, weight, panel, lines, col, count, sums);
    case DType::kBF16:
      return multiply_few_rows<PairReader>(m, rows, weight, panel, lines, col, count, sums);
    case DType::kF8E4M3:
      return multiply_few_rows<Fp8Reader>(m, rows, weight, panel, lines, col, count, sums);
    case DType::kI8:
      return multiply_few_rows<IntegerReader>(m, rows, weight, panel, lines, col, count, sums);
    case DType::kNVFP4:
      return multiply_few_rows<Nvfp4Reader>(m, rows, weight, panel, lines, col, count, sums);
    default:
      return multiply_block_panels(rows, m, weight, panel, lines, col, count, sums);
  }
}
