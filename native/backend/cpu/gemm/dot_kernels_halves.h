// dot_kernels_halves.h: bytes as 16-bit numbers, whose products vpmaddwd adds without loss. Included once in
// an unnamed namespace, after
//   kWidth                      lanes of a vector
//   Shorts, Sums                a vector of int16_t, and of uint32_t
//   add_pairs(Shorts, Shorts)   the sums of neighbouring products
using UnsignedShorts = uint16_t __attribute__((vector_size(sizeof(Shorts))));

struct Halves {
  Shorts even, odd;  // bytes 0, 2 and 1, 3 of each lane
};

struct Unsigned {
  static Shorts even(Shorts lanes) { return lanes & 0xFF; }
  static Shorts odd(Shorts lanes) { return (Shorts)((UnsignedShorts)lanes >> 8); }
};

struct Signed {
  static Shorts even(Shorts lanes) { return (lanes << 8) >> 8; }
  static Shorts odd(Shorts lanes) { return lanes >> 8; }
};

template <typename Row, typename Panel>
struct Bytes {
  using Vec = Sums;
  using Lanes = Halves;
  static Lanes load_lanes(const uint32_t* from) {
    Shorts lanes;
    __builtin_memcpy(&lanes, from, sizeof(lanes));
    return {Panel::even(lanes), Panel::odd(lanes)};
  }
  static Vec dot(uint32_t row, const Lanes& lanes, Vec sum) {
    const Shorts bytes = (Shorts)(Sums{} + row);
    return sum + add_pairs(Row::even(bytes), lanes.even) + add_pairs(Row::odd(bytes), lanes.odd);
  }
};
