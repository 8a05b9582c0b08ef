// dot_kernels_halves.h: bytes as 16-bit numbers, whose products vpmaddwd adds without loss. Included once in
// an unnamed namespace, after
//   Shorts, Sums                a vector of int16_t, and of uint32_t
//   add_pairs(Shorts, Shorts)   the sums of neighbouring products
using UnsignedShorts = uint16_t __attribute__((vector_size(sizeof(Shorts))));

struct Halves {
  Shorts even, odd;  // bytes 0, 2 and 1, 3 of each group
};

struct Unsigned {
  static Shorts even(Shorts groups) { return groups & 0xFF; }
  static Shorts odd(Shorts groups) { return (Shorts)((UnsignedShorts)groups >> 8); }
};

struct Signed {
  static Shorts even(Shorts groups) { return (groups << 8) >> 8; }
  static Shorts odd(Shorts groups) { return groups >> 8; }
};

template <typename Panel>
inline Halves split(Sums groups) {
  return {Panel::even((Shorts)groups), Panel::odd((Shorts)groups)};
}

template <typename Row, typename Panel>
struct Bytes {
  using Vec = Sums;
  using Groups = Halves;
  static Groups load_groups(const uint32_t* from) {
    Sums groups;
    __builtin_memcpy(&groups, from, sizeof(groups));
    return split<Panel>(groups);
  }
  static Vec dot(uint32_t row, const Groups& groups, Vec sum) {
    const Shorts bytes = (Shorts)(Sums{} + row);
    return sum + add_pairs(Row::even(bytes), groups.even) + add_pairs(Row::odd(bytes), groups.odd);
  }
};

using UnsignedBySigned = Bytes<Unsigned, Signed>;
using SignedByUnsigned = Bytes<Signed, Unsigned>;
