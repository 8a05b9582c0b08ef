// gemm_blocks_integer.h: the codes of a panel in a block format as unsigned bytes for dot products with
// signed ones, and what becomes of these. Included by gemm_body.h after gemm_blocks.h.
//
// A level is its byte less a zero: of the block, or kByteZero.
template <typename F>
constexpr bool kHasByteLevels = F::kSigned || !std::is_void_v<typename F::Levels>;
template <typename F>
constexpr int kByteZero = kHasByteLevels<F> ? 128 : F::kZero;

template <typename F>
struct ByteTable {
  alignas(16) uint8_t at[16];
  constexpr ByteTable() : at() {
    for (uint32_t code = 0; code < 16; ++code)
      at[code] = static_cast<uint8_t>(blocks::level_of<F>(code) + 128);
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
  if constexpr (!std::is_void_v<typename F::Levels>) return lookup_bytes(bytes, kByteTable<F>.at);
  if constexpr (F::kHigh > 0) bytes |= (high & (((1u << F::kHigh) - 1) * kOnes)) << F::kLow;
  return bytes;
}

template <typename F>
void unpack_block(const Weight& weight, int64_t panel, int64_t col, uint32_t* words) {
  using Panel = BlockPanel<F>;
  const int64_t within = col % Panel::kCols;
  const uint8_t* group = static_cast<const uint8_t*>(weight.data) + panel * Panel::bytes(weight.cols) +
                         col / Panel::kCols * Panel::kBytes;
  for (int v = 0; v < kPanelVecs; ++v) {
    const GroupRows<F> rows{group, v};
#pragma GCC unroll 8
    for (int at = 0; at < kIntegerCols; at += 4) {
      const int64_t c = within + at;
      const Bits low = load_words(rows.part(Panel::kLowWords, c / Panel::kLowCols, 4)) >>
                       static_cast<uint32_t>(c % Panel::kLowCols / 4 * F::kLow);
      Bits high{};
      if constexpr (F::kHigh > 0) {
        high = load_words(rows.part(Panel::kHighWords, c / Panel::kHighCols, 4)) >>
               static_cast<uint32_t>(c % Panel::kHighCols / 4 * F::kHigh);
      }
      const Bits bytes = four_bytes<F>(low, high);
      __builtin_memcpy(words + at / 4 * kPanelRows + v * kWidth, &bytes, sizeof(bytes));
    }
  }
}

template <typename F>
void add_block_dots(const Weight& weight, int64_t panel, int64_t col, const IntegerRows& x,
                    const int32_t* dots, float* sums) {
  using Panel = BlockPanel<F>;
  const int64_t within = col % Panel::kCols;
  const uint8_t* group = static_cast<const uint8_t*>(weight.data) + panel * Panel::bytes(weight.cols) +
                         col / Panel::kCols * Panel::kBytes;
  for (int v = 0; v < kPanelVecs; ++v) {
    const RunFactors run = GroupRows<F>{group, v}.factors(within);
    const Bits zero = Panel::kHasZero ? run.zero : Bits{} + kByteZero<F>;
    for (int64_t i = 0; i < x.count; ++i) {
      const int32_t x_sum = x.sums[i * x.sum_stride];
      const float x_scale = x.scales[i * x.scale_stride];
      Bits dot;
      __builtin_memcpy(&dot, dots + i * kTile + v * kWidth, sizeof(dot));
      if constexpr (Panel::kHasZero || kByteZero<F> != 0) dot -= zero * static_cast<uint32_t>(x_sum);
      float* to = sums + i * kPanelRows + v * kWidth;
      Vec total = multiply_add(to_floats(dot), run.scale * splat(x_scale), load(to));
      if constexpr (Panel::kHasOffset) {
        total = multiply_add(run.offset, splat(x_scale * static_cast<float>(x_sum)), total);
      }
      store(to, total);
    }
  }
}

// --- by format; those of E4M3 have no integers ---

void unpack_codes(const Weight& weight, int64_t panel, int64_t col, uint32_t* words) {
  switch (weight.dtype) {
#define SPARK_UNPACK(name, enumerator, Format)                                            \
  case DType::enumerator:                                                                 \
    if constexpr (!Format::kE4m3) return unpack_block<Format>(weight, panel, col, words); \
    break;
    SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_UNPACK)
#undef SPARK_UNPACK
    default:
      return;
  }
}

void add_dots(const Weight& weight, int64_t panel, int64_t col, const IntegerRows& x, const int32_t* dots,
              float* sums) {
  switch (weight.dtype) {
#define SPARK_ADD(name, enumerator, Format)                                                         \
  case DType::enumerator:                                                                           \
    if constexpr (!Format::kE4m3) return add_block_dots<Format>(weight, panel, col, x, dots, sums); \
    break;
    SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_ADD)
#undef SPARK_ADD
    default:
      return;
  }
}
