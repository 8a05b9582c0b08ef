// vec4.h: the vectors of four floats that every machine has; included as gemm_body.h is, and before it.

constexpr int kWidth = 4;
using Vec = float __attribute__((vector_size(16)));
using Bits = uint32_t __attribute__((vector_size(16)));

inline Vec larger(Vec a, Vec b) { return (a >= b) | (a != a) ? a : b; }

inline Vec at_least(Vec values, Vec least) { return values < least ? least : values; }
inline Vec at_most(Vec values, Vec most) { return values > most ? most : values; }

inline void stream(float* to, Vec vec) { __builtin_memcpy(to, &vec, sizeof(vec)); }

inline Vec load_part(const float* from, int64_t count) {
  return Vec{count > 0 ? from[0] : 0, count > 1 ? from[1] : 0, count > 2 ? from[2] : 0};
}

inline void store_part(float* to, Vec values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = values[i];
}

template <typename Code>
inline Bits load_codes(const Code* codes) {
  return Bits{codes[0], codes[1], codes[2], codes[3]};
}

inline Vec lookup_e2m1(Bits codes) {
  return Vec{kE2M1[codes[0]], kE2M1[codes[1]], kE2M1[codes[2]], kE2M1[codes[3]]};
}

inline Bits lookup_bytes(Bits codes, const uint8_t* table) {
  uint8_t bytes[sizeof(Bits)];
  __builtin_memcpy(bytes, &codes, sizeof(codes));
  for (uint8_t& byte : bytes) byte = table[byte];
  __builtin_memcpy(&codes, bytes, sizeof(codes));
  return codes;
}

inline Bits lookup_words(Bits indices, const uint32_t* table) {
  return Bits{table[indices[0]], table[indices[1]], table[indices[2]], table[indices[3]]};
}

inline Vec lookup(Bits codes, const float* table) {
  return Vec{table[codes[0] & 15], table[codes[1] & 15], table[codes[2] & 15], table[codes[3] & 15]};
}

inline Vec load_e2m1(const uint8_t* codes) {
  return Vec{kE2M1[codes[0] & 15], kE2M1[codes[0] >> 4], kE2M1[codes[1] & 15], kE2M1[codes[1] >> 4]};
}

inline Vec evens(Vec a, Vec b) { return Vec{a[0], a[2], b[1], b[3]}; }

inline void order_before_reads(Vec& vec) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(vec) : : "memory");
#else
  asm volatile("" : "+w"(vec) : : "memory");
#endif
}

struct Mask {
  int64_t begin, end;
};

inline Mask mask_between(int64_t begin, int64_t end) { return {begin, end}; }

inline Mask mask_if(bool wanted, Mask mask) { return wanted ? mask : Mask{0, 0}; }

inline Vec load_masked(const float* from, Mask mask) {
  if (mask.begin == 0 && mask.end == kWidth) {
    Vec whole;
    __builtin_memcpy(&whole, from, sizeof(whole));
    return whole;
  }
  Vec values = {};
  for (int64_t i = 0; i < kWidth; ++i) {
    if (i >= mask.begin && i < mask.end) values[i] = from[i];
  }
  return values;
}

inline void transpose(Vec (&v)[4]) {
  const Vec a = v[0], b = v[1], c = v[2], d = v[3];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) v[i] = Vec{a[i], b[i], c[i], d[i]};
}
