// dot_kernels_body.h: the register blocks of dot_kernels.h. Included once in an unnamed namespace, after
//   kWidth, kRows, kVecs   groups of a vector; the block of sums in registers: kRows by kVecs vectors
// Kind gives Vec (of sums), Groups (what load_groups gives, prepared for many rows), load_groups(from) and
// dot(row, groups, sum), where row is a group that all share.
template <typename Kind, typename Sum, int M, int N>
void multiply_block(const uint32_t* rows, int64_t stride, const uint32_t* panel, int64_t groups, Sum* sums) {
  typename Kind::Vec total[M][N] = {};
  for (int64_t l = 0; l < groups; ++l) {
    typename Kind::Groups right[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) right[n] = Kind::load_groups(panel + l * kPanelRows + n * kWidth);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) total[m][n] = Kind::dot(rows[m * stride + l], right[n], total[m][n]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      typename Kind::Vec sum;
      Sum* at = sums + m * kTile + n * kWidth;
      __builtin_memcpy(&sum, at, sizeof(sum));
      sum += total[m][n];
      __builtin_memcpy(at, &sum, sizeof(sum));
    }
  }
}

template <typename Kind, typename Sum, int M>
void multiply_rows(int64_t m, const uint32_t* rows, int64_t stride, const uint32_t* panel, int64_t vecs,
                   int64_t groups, Sum* sums) {
  if (m < M) {
    if constexpr (M > 1) multiply_rows<Kind, Sum, M - 1>(m, rows, stride, panel, vecs, groups, sums);
    return;
  }
  for (; vecs >= kVecs; vecs -= kVecs, panel += kVecs * kWidth, sums += kVecs * kWidth) {
    multiply_block<Kind, Sum, M, kVecs>(rows, stride, panel, groups, sums);
  }
  for (; vecs > 0; --vecs, panel += kWidth, sums += kWidth) {
    multiply_block<Kind, Sum, M, 1>(rows, stride, panel, groups, sums);
  }
}

template <typename Kind, typename Sum>
void multiply_dot_groups(const uint32_t* rows, int64_t stride, int64_t m, const uint32_t* panel, int64_t cols,
                         int64_t groups, Sum* sums) {
  const int64_t vecs = (cols + kWidth - 1) / kWidth;
  for (int64_t blocks = (m + kRows - 1) / kRows; blocks > 0; --blocks) {
    const int64_t block = (m + blocks - 1) / blocks;
    multiply_rows<Kind, Sum, kRows>(block, rows, stride, panel, vecs, groups, sums);
    rows += block * stride;
    sums += block * kTile;
    m -= block;
  }
}
