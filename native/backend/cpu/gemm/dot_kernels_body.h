// dot_kernels_body.h: the register blocks of dot_kernels.h. Included once in an unnamed namespace, after
//   kWidth, kRows, kVecs   lanes of a vector; the block of sums in registers: kRows by kVecs vectors
// Kind gives Vec (of sums), Lanes (what load_lanes gives, prepared for many rows), load_lanes(from) and
// dot(row, lanes, sum), where row is a lane that all share.
template <typename Kind, typename Sum, int M, int N>
void multiply_block(const uint32_t* rows, int64_t stride, const uint32_t* panel, int64_t lanes, Sum* sums) {
  typename Kind::Vec total[M][N] = {};
  for (int64_t l = 0; l < lanes; ++l) {
    typename Kind::Lanes right[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) right[n] = Kind::load_lanes(panel + l * kPanelRows + n * kWidth);
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
                   int64_t lanes, Sum* sums) {
  if (m < M) {
    if constexpr (M > 1) multiply_rows<Kind, Sum, M - 1>(m, rows, stride, panel, vecs, lanes, sums);
    return;
  }
  for (; vecs >= kVecs; vecs -= kVecs, panel += kVecs * kWidth, sums += kVecs * kWidth) {
    multiply_block<Kind, Sum, M, kVecs>(rows, stride, panel, lanes, sums);
  }
  for (; vecs > 0; --vecs, panel += kWidth, sums += kWidth) {
    multiply_block<Kind, Sum, M, 1>(rows, stride, panel, lanes, sums);
  }
}

template <typename Kind, typename Sum>
void multiply_lanes(const uint32_t* rows, int64_t stride, int64_t m, const uint32_t* panel, int64_t cols,
                    int64_t lanes, Sum* sums) {
  const int64_t vecs = (cols + kWidth - 1) / kWidth;
  for (int64_t blocks = (m + kRows - 1) / kRows; blocks > 0; --blocks) {
    const int64_t block = (m + blocks - 1) / blocks;
    multiply_rows<Kind, Sum, kRows>(block, rows, stride, panel, vecs, lanes, sums);
    rows += block * stride;
    sums += block * kTile;
    m -= block;
  }
}
