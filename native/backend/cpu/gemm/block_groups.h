// block_groups.h: what a vector of rows of a panel in a block format (block_panels.h) has for its columns:
// scales, offsets and zero points. Included after vec_memory.h.
using Integers = int32_t __attribute__((vector_size(sizeof(Bits))));

inline Vec to_floats(Bits numbers) { return __builtin_convertvector((Integers)numbers, Vec); }

inline Bits sign_extended(Bits bytes) { return (bytes ^ 0x80) - 0x80; }

// The f16 numbers of codes.
inline Vec halves_of(Bits codes) {
  using Halves = uint16_t __attribute__((vector_size(sizeof(Bits) / 2)));
  const Halves halves = __builtin_convertvector(codes, Halves);
  uint16_t numbers[kWidth];
  __builtin_memcpy(numbers, &halves, sizeof(numbers));
  return load_halves(numbers);
}

// A block of each row of vector v of a group as it is stored: a Source of grid_formats.h.
struct StoredBlocks {
  const uint8_t* group;
  int v;

  Bits half(int i) const {
    uint16_t codes[kWidth];
    __builtin_memcpy(codes, group + i * kPanelRows + v * kWidth * 2, sizeof(codes));
    return load_codes(codes);
  }
  Bits byte(int i) const { return half(i & ~1) >> (i & 1) * 8 & 0xFF; }
  Bits word(int i) const { return half(i) | half(i + 2) << 16; }
  Bits look_up(const uint32_t* table, Bits indices) const { return lookup_words(indices, table); }
};

// What the columns of a run have in common.
struct RunFactors {
  Vec scale, offset;
  Bits zero;  // an integer, or the bits of a float
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
  StoredBlocks stored() const { return {group, v}; }
  RunFactors factors(int64_t col) const { return {scale(col), offset(col), zero(col)}; }
  Bits zero(int64_t col) const {
    if constexpr (F::kFloatZero) return load_words(part(Panel::kMins, col / F::kElements, 4));
    if constexpr (Panel::kHasZero && !F::kFloatZero)
      return load_codes(part(Panel::kMins, col / F::kElements, 1));
    return Bits{};
  }
  // Of the run that holds a column.
  Vec scale(int64_t col) const {
    const int64_t block = col / F::kElements;
    if constexpr (F::kAsStored) {
      const Vec d = halves_of(F::half(stored()));
      if constexpr (F::kScale == blocks::Scale::kHalf)
        return d;
      else
        return d * (to_floats(F::factor(stored(), static_cast<int>(col / F::kRun))) * F::kStep);
    } else if constexpr (F::kScale == blocks::Scale::kExponent) {
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
    if constexpr (Panel::kHasOffset) {
      Vec min = halves(Panel::kMins, col / F::kElements);
      if constexpr (Panel::kTimes) min *= to_floats(load_codes(part(Panel::kSubMins, col / F::kRun, 1)));
      return F::kOffset < 0 ? -min : min;
    }
    return Vec{};
  }
};
