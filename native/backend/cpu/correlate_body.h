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

constexpr int kChains = 16, kParts = kChains / kWidth;

// A line's last elements, fewer than kChains, with zeros behind them.
struct Rest {
  int64_t count;
  Bits inside[kParts];

  explicit Rest(int64_t width) : count(width % kChains) {
    uint32_t lanes[kChains];
    for (int64_t lane = 0; lane < kChains; ++lane) lanes[lane] = lane < count ? ~0u : 0;
    __builtin_memcpy(inside, lanes, sizeof(inside));
  }
  Vec cut(Vec values, int part) const { return (Vec)((Bits)values & inside[part]); }
};

template <int T>
void dot_taps(const float* gradient, int64_t height, int64_t width, const float* data, int64_t pitch,
              const int64_t* offset, float* sums) {
  const Rest rest(width);
  Vec total[T][kParts] = {};
  for (int64_t y = 0; y < height; ++y, gradient += width, data += pitch) {
    int64_t x = 0;
    for (; x + kChains <= width; x += kChains) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const Vec factor = load(gradient + x + part * kWidth);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
          const Vec values = load(data + offset[t] + x + part * kWidth);
          total[t][part] = multiply_add(factor, values, total[t][part]);
        }
      }
    }
    if (rest.count == 0) continue;
    float last[kChains] = {};
    for (int64_t i = 0; i < rest.count; ++i) last[i] = gradient[x + i];
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const Vec values = rest.cut(load(data + offset[t] + x + part * kWidth), part);
        total[t][part] = multiply_add(load(last + part * kWidth), values, total[t][part]);
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    float chains[kChains], sum = 0;
    __builtin_memcpy(chains, total[t], sizeof(chains));
    for (const float chain : chains) sum += chain;
    sums[t] += sum;
  }
}

template <int T>
void dot_some(int64_t taps, const float* gradient, int64_t height, int64_t width, const float* data,
              int64_t pitch, const int64_t* offset, float* sums) {
  if (taps == T) return dot_taps<T>(gradient, height, width, data, pitch, offset, sums);
  if constexpr (T > 1) dot_some<T - 1>(taps, gradient, height, width, data, pitch, offset, sums);
}

void dots(const float* gradient, int64_t height, int64_t width, const float* data, int64_t pitch,
          const int64_t* offset, int64_t depth, float* sums) {
  constexpr int64_t kTaps = kWidth * 3 / 4;  // whose chains take twelve registers
  for (int64_t blocks = (depth + kTaps - 1) / kTaps; blocks > 0; --blocks) {
    const int64_t taps = (depth + blocks - 1) / blocks;
    dot_some<kTaps>(taps, gradient, height, width, data, pitch, offset, sums);
    offset += taps;
    sums += taps;
    depth -= taps;
  }
}
