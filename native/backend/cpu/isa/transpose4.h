// transpose4.h: a transpose for vectors of four; included as kernels.h is.

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
