// low_rank_body.h: a weight plus a product of low rank; a part of gemm_body.h.

// total[m][n] = Σ b[m * rank + k] · a[k * stride + n * kWidth ...] for k < count, a chain.
template <int M, int N>
inline void low_rank_chain(const float* b, int64_t rank, const float* a, int64_t stride, int64_t count,
                           Vec (&total)[M][N]) {
  for (int64_t k = 0; k < count; ++k) {
    Vec right[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) right[n] = load(a + k * stride + n * kWidth);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const Vec left = splat(b[m * rank + k]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) total[m][n] = multiply_add(left, right[n], total[m][n]);
    }
  }
}

// Asks for what the next tile reads in the place of these elements.
inline void prefetch_part(const LowRankTile& tile, int64_t row, int64_t col, int64_t rows, int64_t cols) {
  const int64_t first = (row * tile.cols + col * rows) * tile.next_bits / 8;
  for (int64_t at = 0; at < rows * cols * tile.next_bits / 8; at += 64) {
    __builtin_prefetch(tile.next + first + at, 0, 2);
  }
}

// `count` elements of the last vector are stored.
template <int M, int N>
void low_rank_block(const LowRankTile& tile, int64_t row, int64_t col, int64_t count) {
  const float *b = tile.b + row * tile.rank, *a = tile.a + col;
  prefetch_part(tile, row, col, M, N * kWidth);
  Vec total[M][N] = {};
  low_rank_chain<M, N>(b, tile.rank, a, tile.a_stride, smaller(kChunk, tile.rank), total);
  for (int64_t k = kChunk; k < tile.rank; k += kChunk) {
    Vec more[M][N] = {};
    low_rank_chain<M, N>(b + k, tile.rank, a + k * tile.a_stride, tile.a_stride,
                         smaller(kChunk, tile.rank - k), more);
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) total[m][n] += more[m][n];
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
    const float* weight = tile.weight + (row + m) * kLine + col;
    float* to = tile.to + (row + m) * tile.to_stride + col;
    const Vec gain = splat(tile.gain ? tile.gain[row + m] : 1);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const Vec value = gain * (load(weight + n * kWidth) + total[m][n]);
      if (n == N - 1 && count < kWidth) {
        __builtin_memcpy(to + n * kWidth, &value, count * sizeof(float));
      } else if (tile.past_cache) {
        stream(to + n * kWidth, value);
      } else {
        store(to + n * kWidth, value);
      }
    }
  }
}

template <int M>
void low_rank_rows(const LowRankTile& tile, int64_t row) {
  constexpr int N = 2 * kVecs <= 4 ? 2 * kVecs : 4;
  int64_t col = 0;
  for (; col + N * kWidth <= tile.cols; col += N * kWidth) low_rank_block<M, N>(tile, row, col, kWidth);
  for (; col < tile.cols; col += kWidth) {
    low_rank_block<M, 1>(tile, row, col, smaller(kWidth, tile.cols - col));
  }
}

void add_low_rank(const LowRankTile& tile) {
  int64_t row = 0;
  for (; row + 4 <= tile.rows; row += 4) low_rank_rows<4>(tile, row);
  for (; row < tile.rows; ++row) low_rank_rows<1>(tile, row);
}
