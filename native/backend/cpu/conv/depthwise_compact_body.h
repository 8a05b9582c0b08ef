// depthwise_compact_body.h: a depthwise convolution of a compact image with K x K taps and a stride of S, a
// channel in each lane of a vector. Elements are read where they lie, positions around the image from zeros.
// Included by gemm_body.h.

constexpr int kMaxPositions = 8;  // whose sums stay in registers

// Results [x, x + B) of a line.
template <int K, int S, int B>
void compact_block(const DepthwiseCompact& of, const float* const* lines, int64_t x, float* y) {
  constexpr int kColumns = S * (B - 1) + K;
  const float* at[K][kColumns];
  for (int v = 0; v < kColumns; ++v) {
    const int64_t column = S * x + v - of.pad;
    const bool inside = column >= 0 && column < of.image;
    for (int i = 0; i < K; ++i) {
      at[i][v] = inside && lines[i] ? lines[i] + column * of.channels : of.zeros;
    }
  }
  for (int64_t group = of.first; group < of.end; ++group) {
    const int64_t channel = smaller(group * kWidth, of.channels - kWidth);
    const float* weights = of.weights + group * of.pitch;
    Vec total[B] = {};
#pragma GCC unroll 5
    for (int i = 0; i < K; ++i, weights += K * kWidth) {
      Vec weight[K];
#pragma GCC unroll 5
      for (int j = 0; j < K; ++j) weight[j] = load(weights + j * kWidth);
#pragma GCC unroll 32
      for (int v = 0; v < kColumns; ++v) {
        const Vec values = load(at[i][v] + channel);
#pragma GCC unroll 5
        for (int j = 0; j < K; ++j) {
          const int b = (v - j) / S;
          if (v < j || (v - j) % S != 0 || b >= B) continue;
          total[b] = multiply_add(weight[j], values, total[b]);
        }
      }
    }
    const Vec bias = of.bias ? load(of.bias + channel) : Vec{};
    float* to = y + x * of.channels + channel;
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b, to += of.channels) store(to, bounded(total[b] + bias, of.bounds));
  }
}

template <int K, int S, int B>
void compact_results(int64_t count, const DepthwiseCompact& of, const float* const* lines, int64_t x,
                     float* y) {
  if (count == B) return compact_block<K, S, B>(of, lines, x, y);
  if constexpr (B > 1) compact_results<K, S, B - 1>(count, of, lines, x, y);
}

template <int K, int S>
void depthwise_compact(const DepthwiseCompact& of, const float* const* lines, float* y) {
  int64_t x = 0;
  for (int64_t left = (of.out + kMaxPositions - 1) / kMaxPositions; left > 0; --left) {
    const int64_t some = (of.out - x + left - 1) / left;
    compact_results<K, S, kMaxPositions>(some, of, lines, x, y);
    x += some;
  }
}

void depthwise_compact(int64_t kernel, int64_t stride, const DepthwiseCompact& of, const float* const* lines,
                       float* y) {
  if (kernel == 3) {
    return stride == 1 ? depthwise_compact<3, 1>(of, lines, y) : depthwise_compact<3, 2>(of, lines, y);
  }
  stride == 1 ? depthwise_compact<5, 1>(of, lines, y) : depthwise_compact<5, 2>(of, lines, y);
}

// The taps of some channels, [taps, lane]. Writes whole vectors of taps.
inline void load_groups(const float* weights, int64_t taps, int64_t channels, float* to) {
  for (int64_t at = 0; at < taps; at += kWidth) {
    Vec block[kWidth];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kWidth; ++i) {
      block[i] = load_some(weights + smaller(i, channels - 1) * taps + at, taps - at);
    }
    transpose(block);
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) store(to + (at + i) * kWidth, block[i]);
  }
}

// The weights [channels, K * K] of each group of channels, [taps, lane]; channels >= kWidth.
void depthwise_groups(int64_t kernel, const float* weights, int64_t channels, int64_t pitch, float* to) {
  for (int64_t first = 0; first < channels; first += kWidth, to += pitch) {
    const float* of_group = weights + smaller(first, channels - kWidth) * kernel * kernel;
    load_groups(of_group, kernel * kernel, kWidth, to);
  }
}
