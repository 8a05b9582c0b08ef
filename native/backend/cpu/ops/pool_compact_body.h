// pool_compact_body.h: the largest elements and the means of a line of windows on a compact image, a vector
// of channels at a time. Columns come first, as those of planes do (pool_body.h): the bits are the same.
// Included by gemm_body.h.

// The first `count` channels of each column under a line of windows, joined, at columns[p · kPoolChannels].
template <typename Number>
void join_channels(const Windows& of, const CompactLine& line, const ColumnKernels<Number>& kernels,
                   Number* columns) {
  const CoveredTaps deep(of, 0, line.a), down(of, 1, line.b);
  const auto [depth, height, width] = of.image;
  const int64_t pitch = width * line.channels;
  CoveredLines from = {line.x + (deep.start * height + down.start) * pitch, deep.count,
                       of.dilation[0] * height * pitch, down.count, of.dilation[1] * pitch};
  const int64_t covered = deep.count == 1 ? down.count : 0;
  const auto join = covered == 2 ? kernels.two : covered == 3 ? kernels.three : kernels.any;
  for (int64_t p = 0; p < width; ++p) {
    join(from, line.count, columns + p * kPoolChannels);
    from.first += line.channels;
  }
}

void max_line(const Windows& of, const CompactLine& line, float* columns) {
  join_channels(of, line, kMaxOfColumns, columns);
  const int64_t step = of.dilation[2] * kPoolChannels;
  float* y = line.y;
  for (int64_t q = 0; q < of.out[2]; ++q, y += line.channels) {
    const CoveredTaps across(of, 2, q);
    const float* from = columns + across.start * kPoolChannels;
    for (int64_t c = 0; c < line.count; c += kWidth) {
      Vec max = splat(-__builtin_inff());
      for (int64_t k = 0; k < across.count; ++k) max = larger(max, load(from + k * step + c));
      store_some(y + c, max, line.count - c);
    }
  }
}

void mean_line(const Windows& of, const CompactLine& line, const CountedTaps& counts, double* columns) {
  join_channels(of, line, kSumOfColumns, columns);
  const int64_t step = of.dilation[2] * kPoolChannels;
  const double factor = counts.axes[0][line.a] * counts.axes[1][line.b];
  float* y = line.y;
  for (int64_t q = 0; q < of.out[2]; ++q, y += line.channels) {
    const CoveredTaps across(of, 2, q);
    const double* from = columns + across.start * kPoolChannels;
    const double divisor = factor * counts.axes[2][q];
    for (int64_t c = 0; c < line.count; c += kHalfWidth) {
      HalfDoubles sum{}, column;
      for (int64_t k = 0; k < across.count; ++k) {
        __builtin_memcpy(&column, from + k * step + c, sizeof(column));
        sum += column;
      }
      store_half(y + c, __builtin_convertvector(sum / divisor, HalfFloats), line.count - c);
    }
  }
}
