// gemm_vec4.h: the vectors of four floats that every machine has; included as gemm_body.h is, and before it.

constexpr int kWidth = 4;
using Vec = float __attribute__((vector_size(16)));
using Bits = uint32_t __attribute__((vector_size(16)));

template <typename Code>
inline Bits load_codes(const Code* codes) {
  return Bits{codes[0], codes[1], codes[2], codes[3]};
}

inline Vec load_e2m1(const uint8_t* codes) {
  return Vec{kE2M1[codes[0] & 15], kE2M1[codes[0] >> 4], kE2M1[codes[1] & 15], kE2M1[codes[1] >> 4]};
}

inline void transpose(Vec (&v)[4]) {
  const Vec a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
  const Vec b = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
  const Vec c = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
  const Vec d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  v[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  v[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}
