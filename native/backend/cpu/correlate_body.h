// correlate_body.h: the loop of a convolution with few channels; the last part of gemm_body.h.

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
