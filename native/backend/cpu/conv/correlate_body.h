// correlate_body.h: the loops over the images of convolutions. Included by gemm_body.h.

// Blocks of vectors whose results stay in registers: fold(total, k, vector) takes in row k, done(total) ends.
template <int N, typename Fold, typename Done>
int64_t fold_blocks(const float* data, const int64_t* offset, int64_t depth, int64_t begin, int64_t count,
                    Vec start, const Fold& fold, const Done& done, float* to) {
  for (; begin + (N - 1) * kWidth < count; begin += N * kWidth) {
    Vec total[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) total[n] = start;
    for (int64_t k = 0; k < depth; ++k) {
      const float* from = data + offset[k] + begin;
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) total[n] = fold(total[n], k, load(from + n * kWidth));
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) store(to + begin + n * kWidth, done(total[n]));
  }
  return begin;
}

template <typename Fold, typename Done>
void fold_rows(const float* data, const int64_t* offset, int64_t depth, int64_t count, Vec start,
               const Fold& fold, const Done& done, float* to) {
  int64_t at = fold_blocks<8>(data, offset, depth, 0, count, start, fold, done, to);
  at = fold_blocks<2>(data, offset, depth, at, count, start, fold, done, to);
  fold_blocks<1>(data, offset, depth, at, count, start, fold, done, to);
}

void correlate(const float* coefficients, const float* data, const int64_t* offset, int64_t depth,
               int64_t count, float bias, Bounds bounds, float* sums) {
  const Vec shift = splat(bias);
  const auto fold = [&](Vec total, int64_t k, Vec x) {
    return multiply_add(splat(coefficients[k]), x, total);
  };
  const auto done = [&](Vec total) { return bounded(total + shift, bounds); };
  fold_rows(data, offset, depth, count, Vec{}, fold, done, sums);
}

// A vector at once where `remaining` elements may be written.
inline void fill(float* to, int64_t count, float value, int64_t remaining) {
  if (count == 0) return;
  if (count <= kWidth && remaining >= kWidth) return store(to, splat(value));
  for (int64_t i = 0; i < count; ++i) to[i] = value;
}

// Copies of so many elements that the compiler knows how.
inline void copy_few(const float* from, int64_t count, float* to) {
#pragma GCC unroll 4
  for (int64_t part = 8; part > 0; part /= 2) {
    if (!(count & part)) continue;
    __builtin_memcpy(to, from, part * sizeof(float));
    from += part;
    to += part;
  }
}

// The last vector overlaps the one before it.
inline void copy_line(const float* from, int64_t count, float* to) {
  if (count < kWidth) return copy_few(from, count, to);
  for (int64_t i = 0; i + kWidth < count; i += kWidth) store(to + i, load(from + i));
  store(to + count - kWidth, load(from + count - kWidth));
}

// Two vectors that overlap by an element end with the last one that is read.
inline void halve_vector(const float* from, float* to) {
  store(to, evens(load(from), load(from + kWidth - 1)));
}

// to[i] = from[2 · i]
inline void halve_line(const float* from, int64_t count, float* to) {
  if (count < kWidth) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
    return;
  }
  for (int64_t i = 0; i + kWidth < count; i += kWidth) halve_vector(from + 2 * i, to + i);
  halve_vector(from + 2 * (count - kWidth), to + count - kWidth);
}

// What a line writes too much the next one writes over.
void pad_lines(const float* from, int64_t pitch, int64_t stride, int64_t lines, int64_t begin, int64_t end,
               int64_t length, float padding, float* to) {
  int64_t remaining = lines * length;
  for (int64_t line = 0; line < lines; ++line, from += pitch, to += length, remaining -= length) {
    fill(to, begin, padding, remaining);
    if (stride == 1) {
      copy_line(from, end - begin, to + begin);
    } else if (stride == 2) {
      halve_line(from, end - begin, to + begin);
    } else {
      for (int64_t i = begin; i < end; ++i) to[i] = from[(i - begin) * stride];
    }
    fill(to + end, length - end, padding, remaining - end);
  }
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
