#include <algorithm>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/weight.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

int64_t volume(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

// Calls pair(q, k, p) for each position q of the output, tap k and position p of the image that belong
// together.
template <typename Pair>
void for_each_pair(const ConvShape& shape, const Pair& pair) {
  const auto along = [&](int axis, int64_t outer_q, int64_t outer_k, int64_t outer_p, const auto& next) {
    for (int64_t q = 0; q < shape.out[axis]; ++q) {
      for (int64_t k = 0; k < shape.kernel[axis]; ++k) {
        const int64_t p = q * shape.stride[axis] + k * shape.dilation[axis] - shape.pad[axis];
        if (p < 0 || p >= shape.image[axis]) continue;
        next(outer_q * shape.out[axis] + q, outer_k * shape.kernel[axis] + k,
             outer_p * shape.image[axis] + p);
      }
    }
  };
  along(0, 0, 0, 0, [&](int64_t q, int64_t k, int64_t p) {
    along(1, q, k, p, [&](int64_t q, int64_t k, int64_t p) { along(2, q, k, p, pair); });
  });
}

std::vector<float> decoded(const Weight& weight) {
  std::vector<float> values(weight.rows * weight.cols);
  for (int64_t row = 0; row < weight.rows; ++row) {
    decode(weight, row, 0, weight.cols, values.data() + row * weight.cols);
  }
  return values;
}

// body(n, o, c, w): for each image, filter, channel c of the C that belongs to it, and the first tap of both.
template <typename Body>
void for_each_filter(const ConvShape& shape, int64_t n, const Body& body) {
  const int64_t group_channels = shape.channels / shape.groups, group_filters = shape.filters / shape.groups;
  for (int64_t o = 0; o < shape.filters; ++o) {
    for (int64_t c = 0; c < group_channels; ++c) {
      body(n * shape.filters + o, n * shape.channels + o / group_filters * group_channels + c,
           (o * group_channels + c) * volume(shape.kernel));
    }
  }
}

// y[n, c, p] += Σ x[n, o, q] W[o, c, k]
void add_transposed(const Weight& weight, const ConvShape& shape, const float* x, float* y) {
  const std::vector<float> w = decoded(weight);
  const int64_t positions = volume(shape.out), pixels = volume(shape.image);
  parallel_for(shape.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      for_each_filter(shape, n, [&](int64_t from, int64_t to, int64_t tap) {
        for_each_pair(shape, [&](int64_t q, int64_t k, int64_t p) {
          y[to * pixels + p] += x[from * positions + q] * w[tap + k];
        });
      });
    }
  });
}

}  // namespace

void conv(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  const std::vector<float> w = decoded(args.weight);
  const int64_t positions = volume(shape.out), pixels = volume(shape.image);
  parallel_for(shape.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t o = 0; o < shape.filters; ++o) {
        std::fill_n(args.y + (n * shape.filters + o) * positions, positions, args.bias ? args.bias[o] : 0.0f);
      }
      for_each_filter(shape, n, [&](int64_t to, int64_t from, int64_t tap) {
        for_each_pair(shape, [&](int64_t q, int64_t k, int64_t p) {
          args.y[to * positions + q] += args.x[from * pixels + p] * w[tap + k];
        });
      });
    }
  });
}

void conv_backward(const ConvBackwardArgs& args) {
  const ConvShape& shape = args.shape;
  const int64_t positions = volume(shape.out), pixels = volume(shape.image);
  if (args.dx) {
    std::fill_n(args.dx, shape.batch * shape.channels * pixels, 0.0f);
    add_transposed(args.weight, shape, args.dy, args.dx);
  }
  if (args.dweight) {
    std::fill_n(args.dweight, args.weight.rows * args.weight.cols, 0.0f);
    for (int64_t n = 0; n < shape.batch; ++n) {
      for_each_filter(shape, n, [&](int64_t from, int64_t with, int64_t tap) {
        for_each_pair(shape, [&](int64_t q, int64_t k, int64_t p) {
          args.dweight[tap + k] += args.dy[from * positions + q] * args.x[with * pixels + p];
        });
      });
    }
  }
  if (args.dbias) {
    for (int64_t o = 0; o < shape.filters; ++o) {
      float sum = 0;
      for (int64_t n = 0; n < shape.batch; ++n) {
        for (int64_t q = 0; q < positions; ++q) sum += args.dy[(n * shape.filters + o) * positions + q];
      }
      args.dbias[o] = sum;
    }
  }
}

void conv_transpose(const ConvTransposeArgs& args) {
  const ConvShape& shape = args.shape;
  const int64_t pixels = volume(shape.image);
  for (int64_t at = 0; at < shape.batch * shape.channels; ++at) {
    std::fill_n(args.y + at * pixels, pixels, args.bias ? args.bias[at % shape.channels] : 0.0f);
  }
  add_transposed(args.weight, shape, args.x, args.y);
}

}  // namespace spark::cpu
