#include "backend/cpu/winograd.h"

#include <algorithm>

#include "backend/cpu/conv_reading.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel_tasks.h"
#include "backend/cpu/product.h"

namespace spark::cpu {
namespace {

constexpr int64_t kIn = 6, kOut = 4, kPlaces = kIn * kIn;
constexpr int64_t kMostFloats = 1 << 19;  // of transformed tiles, so that caches hold them
constexpr int64_t kFewTiles = 64;         // worth reading the weight for
constexpr int64_t kSlack = 16;            // elements that a vector may read too much

constexpr double kRootTwo = 1.4142135623730951;
constexpr double kG[kIn][3] = {{1, 0, 0},
                               {-2.0 / 3, -kRootTwo / 3, -1.0 / 3},
                               {-2.0 / 3, kRootTwo / 3, -1.0 / 3},
                               {1.0 / 6, kRootTwo / 6, 1.0 / 3},
                               {1.0 / 6, -kRootTwo / 6, 1.0 / 3},
                               {0, 0, 1}};

// to[p · stride] = (G · filter · Gᵀ)[p]
void transform_filter(const float* filter, int64_t stride, float* to) {
  double half[kIn][3];
  for (int64_t i = 0; i < kIn; ++i) {
    for (int64_t k = 0; k < 3; ++k) {
      half[i][k] = kG[i][0] * filter[k] + kG[i][1] * filter[3 + k] + kG[i][2] * filter[6 + k];
    }
  }
  for (int64_t i = 0; i < kIn; ++i) {
    for (int64_t j = 0; j < kIn; ++j, to += stride) {
      *to = static_cast<float>(half[i][0] * kG[j][0] + half[i][1] * kG[j][1] + half[i][2] * kG[j][2]);
    }
  }
}

// Floats of a matrix of the transformed weight.
int64_t matrix_floats(int64_t filters, int64_t channels) {
  return (filters + kPanelRows - 1) / kPanelRows * kPanelRows * channels;
}

// Some lines of the tiles of an image.
class TileLines {
 public:
  TileLines(const ConvArgs& args, int64_t n, int64_t first, int64_t lines)
      : args_(args), n_(n), first_(first), lines_(lines), across_((args.shape.out[2] + kOut - 1) / kOut) {}

  // The transformed tiles of all channels: to[p, c, tile].
  void transform(float* to) const {
    ConvShape shape = args_.shape;
    for (int axis = 1; axis < 3; ++axis) {
      shape.kernel[axis] = kIn;
      shape.stride[axis] = kOut;
    }
    shape.pad[1] -= first_ * kOut;
    shape.out[1] = lines_;
    shape.out[2] = across_;
    const ConvReading reading(shape);
    const Stage& stage = *reading.source(nullptr).stage;
    const int64_t channels = shape.channels, pixels = volume(shape.image);
    parallel_tasks(channels, stage.plane() + kSlack, [&](int64_t c, float* room) {
      stage.fill(args_.x + (n_ * channels + c) * pixels, room);
      std::fill_n(room + stage.plane(), kSlack, 0.0f);
      gemm().winograd_input(room, reading.taps().data(), stage.pitch(1), lines_, across_, to + c * tiles(),
                            channels * tiles());
    });
  }

  // products[p, o, tile] = Σ_c matrix p of winograd (o, c) · values[p, c, tile]
  void multiply(const float* values, float* products) const {
    const int64_t channels = args_.shape.channels, filters = args_.shape.filters;
    const int64_t floats = matrix_floats(filters, channels);
    Weight matrices[kPlaces];
    for (int64_t p = 0; p < kPlaces; ++p) {
      matrices[p] = {DType::kF32, filters, channels, args_.winograd + p * floats, nullptr, nullptr, 0, true};
    }
    products_into(
        kPlaces, filters, tiles(),
        [&](int64_t p) -> Segment {
          return {rows_of(matrices[p]), columns_of(values + p * channels * tiles(), tiles()), channels};
        },
        [&](int64_t p) -> Finish {
          return {nullptr, nullptr, false, Activation::kNone, products + p * filters * tiles(), tiles()};
        });
  }

  void finish(const float* products) const {
    const int64_t filters = args_.shape.filters, pitch = kOut * (across_ + kSlack);
    const int64_t height = args_.shape.out[1], width = args_.shape.out[2];
    parallel_tasks(filters, kOut * pitch, [&](int64_t o, float* room) {
      const float bias = args_.bias ? args_.bias[o] : 0;
      const int64_t plane = (n_ * filters + o) * height * width;
      const Finish to = {nullptr,
                         args_.residual ? args_.residual + plane : nullptr,
                         args_.residual_first,
                         args_.activation,
                         args_.y + plane,
                         width};
      for (int64_t line = 0; line < lines_; ++line) {
        const int64_t y = (first_ + line) * kOut;
        gemm().winograd_output(products + o * tiles() + line * across_, filters * tiles(), across_, bias,
                               pitch, room);
        finish_sums(room, pitch, std::min(kOut, height - y), width, finish_from(to, y, 0));
      }
    });
  }

  int64_t tiles() const { return lines_ * across_; }

 private:
  const ConvArgs& args_;
  int64_t n_, first_, lines_, across_;
};

}  // namespace

void winograd_weight(const WinogradWeightArgs& args) {
  const int64_t filters = args.weight.rows, channels = args.weight.cols / 9;
  std::unique_ptr<float[]> room;
  const auto* weight = static_cast<const float*>(decoded(args.weight, room).data);
  const int64_t floats = matrix_floats(filters, channels);
  std::fill_n(args.data, kPlaces * floats, 0.0f);
  parallel_for(filters, 1 + (1 << 9) / (channels + 1), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      float* to = args.data + o / kPanelRows * channels * kPanelRows + o % kPanelRows;
      for (int64_t c = 0; c < channels; ++c) {
        transform_filter(weight + (o * channels + c) * 9, floats, to + c * kPanelRows);
      }
    }
  });
}

void winograd_conv(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  const int64_t down = (shape.out[1] + kOut - 1) / kOut, across = (shape.out[2] + kOut - 1) / kOut;
  const int64_t floats = kPlaces * (shape.channels + shape.filters) * across;  // of a line of tiles
  const int64_t few = (kFewTiles + across - 1) / across;
  const int64_t at_once = std::min(down, std::max(few, kMostFloats / floats));
  const Scratch scratch(staged_floats(floats, at_once) + kSlack);
  for (int64_t n = 0; n < shape.batch; ++n) {
    for (int64_t first = 0; first < down; first += at_once) {
      const TileLines lines(args, n, first, std::min(at_once, down - first));
      float* products = scratch.data() + kPlaces * shape.channels * lines.tiles();
      lines.transform(scratch.data());
      lines.multiply(scratch.data(), products);
      lines.finish(products);
    }
  }
}

}  // namespace spark::cpu
