// add_products4.h: what multiply_codes.h asks for, in the vectors of vec4.h.

constexpr int kCodeRows = 4, kCodeVecs = 2;

// The products of bytes fit into 16 bits.
template <bool kWide>
inline Bits add_products(Bits sum, Bits bytes, uint32_t row) {
  using Shorts = int16_t __attribute__((vector_size(16)));
  using Words = int32_t __attribute__((vector_size(16)));
  const Shorts x = (Shorts)(Bits{} + row);
  const Words even = (Words)((Shorts)(bytes & 0x00FF00FF) * ((x << 8) >> 8));
  const Words odd = (Words)((Shorts)(bytes >> 8 & 0x00FF00FF) * (x >> 8));
  return sum + (Bits)((even << 16 >> 16) + (even >> 16) + (odd << 16 >> 16) + (odd >> 16));
}
