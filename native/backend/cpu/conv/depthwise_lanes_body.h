// depthwise_lanes_body.h: a depthwise convolution with K x K taps and a stride of S, a channel in each lane
// of a vector. Lines narrower than a vector leave no lane empty, and taps need no shuffles; in exchange
// images are transposed on their way in and out. Included by gemm_body.h.

constexpr int kMaxAcross = kRows * kVecs < 12 ? 8 : 12;  // results whose sums stay in registers

// The lines of an image that the next results read, [line, column, lane], with zeros around them.
class LaneLines {
 public:
  LaneLines(const DepthwiseLanes& of, int64_t line, float* workspace)
      : of_(of), workspace_(workspace), zeros_(workspace + of.held * of.pitch * kWidth) {
    const int64_t left = of.plane.pad[1], end = left + of.plane.image[1];
    for (int64_t i = 0; i < of.held; ++i) {
      clear(workspace + i * of.pitch * kWidth, left);
      clear(workspace + (i * of.pitch + end) * kWidth, of.pitch - end);
    }
    clear(zeros_, of.pitch);
    const int64_t pixels = of.plane.image[0] * of.plane.image[1];
    if (of.x_stride == 0) {
      for (int64_t i = 0; i < kWidth; ++i) rows_[i] = of.plane.x + smaller(i, of.channels - 1) * pixels;
    }
    next_ = line * of.plane.image[1];
    slot_ = line % of.held;
  }

  // Line y of the image or around it, of those that read_until() has read.
  const float* line(int64_t y) const {
    return y < 0 || y >= of_.plane.image[0] ? zeros_ : workspace_ + y % of_.held * of_.pitch * kWidth;
  }

  void read_until(int64_t line) {
    const auto [height, width] = of_.plane.image;
    const int64_t pixels = height * width;
    if (of_.x_stride > 0) return copy_until(smaller(line, height) * width);
    while (next_ < smaller(line, height) * width) {
      const int64_t count = smaller(kWidth, pixels - next_);
      Vec block[kWidth];
      if (count == kWidth) {
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) block[i] = load(rows_[i] + next_);
      } else {
        for (int i = 0; i < kWidth; ++i) block[i] = load_part(rows_[i] + next_, count);
      }
      transpose(block);
      put(block, count);
      next_ += count;
    }
  }

 private:
  static void clear(float* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) store(to + i * kWidth, Vec{});
  }

  // Of an image whose channels lie beside each other.
  void copy_until(int64_t end) {
    for (; next_ < end; ++next_) {
      float* to = workspace_ + (slot_ * of_.pitch + of_.plane.pad[1] + column_) * kWidth;
      store(to, load_some(of_.plane.x + next_ * of_.x_stride, of_.channels));
      if (++column_ < of_.plane.image[1]) continue;
      column_ = 0;
      slot_ = slot_ + 1 < of_.held ? slot_ + 1 : 0;
    }
  }

  // Pixels from the next one on.
  void put(const Vec (&block)[kWidth], int64_t count) {
    const int64_t width = of_.plane.image[1];
    float* to = workspace_ + (slot_ * of_.pitch + of_.plane.pad[1] + column_) * kWidth;
    if (count == kWidth && column_ + kWidth < width) {
      column_ += kWidth;
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) store(to + i * kWidth, block[i]);
      return;
    }
    for (int64_t i = 0; i < count; ++i, to += kWidth) {
      store(to, block[i]);
      if (++column_ < width) continue;
      column_ = 0;
      slot_ = slot_ + 1 < of_.held ? slot_ + 1 : 0;
      to = workspace_ + (slot_ * of_.pitch + of_.plane.pad[1] - 1) * kWidth;
    }
  }

  const DepthwiseLanes& of_;
  const float* rows_[kWidth];  // the planes
  float *workspace_, *zeros_;
  int64_t next_, slot_, column_ = 0;  // of the next pixel: its number, and where it goes
};

// Results [x, x + B) of a line, [B, lane].
template <int K, int S, int B>
void lane_block(const float* const* lines, int64_t x, const float* weights, Vec bias, Bounds bounds,
                float* to) {
  Vec total[B] = {};
  for (int i = 0; i < K; ++i, weights += K * kWidth) {
    const float* from = lines[i] + S * x * kWidth;
    Vec weight[K];
#pragma GCC unroll 5
    for (int j = 0; j < K; ++j) weight[j] = load(weights + j * kWidth);
#pragma GCC unroll 32
    for (int v = 0; v < S * (B - 1) + K; ++v) {
      const Vec values = load(from + v * kWidth);
#pragma GCC unroll 5
      for (int j = 0; j < K; ++j) {
        const int b = (v - j) / S;
        if (v < j || (v - j) % S != 0 || b >= B) continue;
        total[b] = multiply_add(weight[j], values, total[b]);
      }
    }
  }
#pragma GCC unroll 12
  for (int b = 0; b < B; ++b) {
    const Vec sum = total[b] + bias;
    store(to + b * kWidth, bounded(sum, bounds));
  }
}

template <int K, int S, int B>
void lane_results(int64_t count, const float* const* lines, int64_t x, const float* weights, Vec bias,
                  Bounds bounds, float* to) {
  if (count == B) return lane_block<K, S, B>(lines, x, weights, bias, bounds, to);
  if constexpr (B > 1) lane_results<K, S, B - 1>(count, lines, x, weights, bias, bounds, to);
}

// to[lane · pitch + i] = from[i · kWidth + lane] for i < count and lane < lanes. Reads whole vectors of i.
inline void store_lanes(const float* from, int64_t count, int64_t lanes, int64_t pitch, float* to) {
  for (int64_t at = 0; at < count; at += kWidth) {
    Vec block[kWidth];
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) block[i] = load(from + (at + i) * kWidth);
    transpose(block);
    if (lanes == kWidth && count - at >= kWidth) {
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < kWidth; ++lane) store(to + lane * pitch + at, block[lane]);
      continue;
    }
    for (int64_t lane = 0; lane < lanes; ++lane) {
      store_some(to + lane * pitch + at, block[lane], count - at);
    }
  }
}

template <int K, int S>
void depthwise_lanes(const DepthwiseLanes& of, int64_t first, int64_t count, float* workspace) {
  const auto [height, width] = of.plane.out;
  alignas(64) float weights[(K * K + kWidth) * kWidth];
  load_groups(of.plane.weights, K * K, of.channels, weights);
  const Vec bias = of.bias ? load_some(of.bias, of.channels) : Vec{};
  const Bounds bounds = of.plane.bounds;
  float* results = workspace;
  const int64_t top = S * first - of.plane.pad[0], blocks = (width + kMaxAcross - 1) / kMaxAcross;
  LaneLines image(of, top < 0 ? 0 : top, workspace + of.results * kWidth);
  const int64_t at_once = of.results / width;
  for (int64_t y = first; y < first + count; y += at_once) {
    const int64_t lines = smaller(at_once, first + count - y);
    float* to = results;
    for (int64_t i = 0; i < lines; ++i) {
      const int64_t line = S * (y + i) - of.plane.pad[0];
      image.read_until(line + K);
      const float* taps[K];
      for (int k = 0; k < K; ++k) taps[k] = image.line(line + k);
      int64_t x = 0;
      for (int64_t left = blocks; left > 0; --left) {
        const int64_t some = (width - x + left - 1) / left;
        lane_results<K, S, kMaxAcross>(some, taps, x, weights, bias, bounds, to);
        x += some;
        to += some * kWidth;
      }
    }
    if (of.y_stride > 0) {
      for (int64_t i = 0; i < lines * width; ++i) {
        const Vec values = load(results + i * kWidth);
        store_some(of.plane.y + (y * width + i) * of.y_stride, values, of.channels);
      }
    } else {
      store_lanes(results, lines * width, of.channels, height * width, of.plane.y + y * width);
    }
  }
}

void depthwise_lanes(int64_t kernel, const DepthwiseLanes& of, int64_t first, int64_t count,
                     float* workspace) {
  const bool dense = of.plane.stride == 1;
  if (kernel == 3) {
    return dense ? depthwise_lanes<3, 1>(of, first, count, workspace)
                 : depthwise_lanes<3, 2>(of, first, count, workspace);
  }
  dense ? depthwise_lanes<5, 1>(of, first, count, workspace)
        : depthwise_lanes<5, 2>(of, first, count, workspace);
}
