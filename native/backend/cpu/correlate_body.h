// correlate_body.h: the loops over the images of a convolution; the last part of gemm_body.h.

// Blocks of vectors whose sums stay in registers.
template <int N>
int64_t correlate_blocks(const float* coefficients, const float* data, const int64_t* offset, int64_t depth,
                         int64_t begin, int64_t count, float* sums) {
  for (; begin + (N - 1) * kWidth < count; begin += N * kWidth) {
    Vec total[N] = {};
    for (int64_t k = 0; k < depth; ++k) {
      const float* from = data + offset[k] + begin;
      const Vec factor = splat(coefficients[k]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) total[n] = multiply_add(factor, load(from + n * kWidth), total[n]);
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) store(sums + begin + n * kWidth, total[n]);
  }
  return begin;
}

void correlate(const float* coefficients, const float* data, const int64_t* offset, int64_t depth,
               int64_t count, float* sums) {
  int64_t done = correlate_blocks<8>(coefficients, data, offset, depth, 0, count, sums);
  done = correlate_blocks<2>(coefficients, data, offset, depth, done, count, sums);
  correlate_blocks<1>(coefficients, data, offset, depth, done, count, sums);
}

// Two vectors that overlap by an element end with the last one that is read.
inline void halve_vector(const float* from, float* to) {
  store(to, evens(load(from), load(from + kWidth - 1)));
}

void halve(const float* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) halve_vector(from + 2 * i, to + i);
  if (i == count) return;
  if (count >= kWidth) return halve_vector(from + 2 * (count - kWidth), to + count - kWidth);
  for (; i < count; ++i) to[i] = from[2 * i];
}
