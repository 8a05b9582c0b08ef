// winograd.cc: Winograd convolutions F(4 x 4, 3 x 3): transforms, GEMMs, epilogue.
#include "backend/cpu/conv/winograd.h"

#include <algorithm>

#include "backend/cpu/conv/conv_reading.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/product.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/parallel_tasks.h"
#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

constexpr int64_t kIn = 6, kOut = 4, kElements = kIn * kIn;
constexpr int64_t kMaxFloats = 1 << 19;   // of transformed tiles that threads share, so that caches hold them
constexpr int64_t kTaskFloats = 1 << 17;  // and of those that a thread has
constexpr int64_t kTaskWeight = 1 << 20;  // floats of a transformed weight that each thread reads
constexpr int64_t kFewTiles = 64;         // worth reading the weight for
constexpr int64_t kTasksOfThread = 2;     // at least, so that threads end together
constexpr int64_t kApart = 16;

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

int64_t rounded_up(int64_t count, int64_t size) { return (count + size - 1) / size * size; }

// Floats of a matrix of the transformed weight.
int64_t matrix_floats(int64_t filters, int64_t channels) {
  return rounded_up(filters, kPanelRows) * channels;
}

// Some lines of the tiles of an image. What belongs to an element of all tiles is kApart elements longer than
// it must be, because a power of two would put all elements into the same cache sets.
class TileLines {
 public:
  TileLines(const ConvArgs& args, int64_t n, int64_t first, int64_t lines)
      : args_(args), n_(n), first_(first), lines_(lines), across_((args.shape.out[2] + kOut - 1) / kOut) {}

  // The transformed tiles of all channels, for each element a side of a product in panels.
  void transform(float* to) const {
    const ConvShape& shape = args_.shape;
    const int64_t height = shape.image[1], width = shape.image[2];
    const WinogradPlane all{args_.x + n_ * shape.channels * height * width,
                            {height, width},
                            {shape.pad[1] - first_ * kOut, shape.pad[2]},
                            lines_,
                            across_,
                            kOut * tiles() + 96};
    parallel_tasks(shape.channels, 2 * kIn * all.pitch, [&](int64_t c, float* workspace) {
      WinogradPlane plane = all;
      plane.image += c * height * width;
      kernels().conv.winograd_input(plane, workspace, to + c * kPanelRows, value_floats(),
                                    shape.channels * kPanelRows);
    });
  }

  // products[p, o, tile] = Σ_c matrix p of winograd (o, c) · values[p, c, tile]
  void multiply(const float* values, float* products) const {
    const int64_t channels = args_.shape.channels, filters = args_.shape.filters;
    const int64_t floats = matrix_floats(filters, channels);
    Weight matrices[kElements], sides[kElements];
    for (int64_t p = 0; p < kElements; ++p) {
      const auto in_panels = [&](int64_t rows, const float* data) {
        return Weight{DType::kF32, rows, channels, data, nullptr, nullptr, 0, true};
      };
      matrices[p] = in_panels(filters, args_.winograd + p * floats);
      sides[p] = in_panels(pitch(), values + p * value_floats());
    }
    products_into(
        kElements, filters, pitch(),
        [&](int64_t p) -> Segment {
          return {rows_of(matrices[p]), rows_of(sides[p]), channels};
        },
        [&](int64_t p) -> Epilogue {
          return {nullptr, nullptr, false, Activation::kNone, products + p * product_floats(), pitch()};
        });
  }

  void store(const float* products) const {
    const int64_t filters = args_.shape.filters, pitch_of_line = kOut * pitch();
    const int64_t height = args_.shape.out[1], width = args_.shape.out[2];
    parallel_tasks(filters, kOut * pitch_of_line, [&](int64_t o, float* workspace) {
      const float bias = args_.bias ? args_.bias[o] : 0;
      const int64_t plane = (n_ * filters + o) * height * width;
      const Epilogue to = {nullptr,
                           args_.residual ? args_.residual + plane : nullptr,
                           args_.residual_first,
                           args_.activation,
                           args_.y + plane,
                           width};
      kernels().conv.winograd_output(products + o * pitch(), product_floats(), tiles(), bias, pitch_of_line,
                                     workspace);
      for (int64_t line = 0; line < lines_; ++line) {
        const int64_t y = (first_ + line) * kOut;
        apply_epilogue(workspace + kOut * line * across_, pitch_of_line, std::min(kOut, height - y), width,
                       epilogue_at(to, y, 0));
      }
    });
  }

  int64_t tiles() const { return lines_ * across_; }
  // Tiles in whole vectors.
  int64_t pitch() const { return rounded_up(tiles(), kVector); }
  int64_t value_floats() const { return rounded_up(tiles(), kPanelRows) * args_.shape.channels + kApart; }
  int64_t product_floats() const { return pitch() * args_.shape.filters + kApart; }

 private:
  const ConvArgs& args_;
  int64_t n_, first_, lines_, across_;
};

}  // namespace

void winograd_weight(const WinogradWeightArgs& args) {
  const int64_t filters = args.weight.rows, channels = args.weight.cols / 9;
  std::unique_ptr<float[]> storage;
  const auto* weight = static_cast<const float*>(decoded(args.weight, storage).data);
  const int64_t floats = matrix_floats(filters, channels);
  std::fill_n(args.data, kElements * floats, 0.0f);
  parallel_for(filters, grain_for(channels, 1 << 9), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      float* to = args.data + o / kPanelRows * channels * kPanelRows + o % kPanelRows;
      for (int64_t c = 0; c < channels; ++c) {
        transform_filter(weight + (o * channels + c) * 9, floats, to + c * kPanelRows);
      }
    }
  });
}

// How many lines of tiles are worth computing at a time, of at most `max_floats` transformed elements.
int64_t lines_at_once(const ConvShape& shape, int64_t max_floats) {
  const int64_t down = (shape.out[1] + kOut - 1) / kOut, across = (shape.out[2] + kOut - 1) / kOut;
  const int64_t floats = kElements * (shape.channels + shape.filters) * across;  // of a line of tiles
  const int64_t few = (kFewTiles + across - 1) / across;
  return std::min(down, std::max(few, max_floats / floats));
}

// Each thread computes lines of its own where there are enough; otherwise threads share each step of some
// lines.
void winograd_conv(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  const int64_t down = (shape.out[1] + kOut - 1) / kOut;
  const int64_t own = lines_at_once(shape, kTaskFloats);
  const bool alone = shape.batch * ((down + own - 1) / own) >= kTasksOfThread * thread_count() &&
                     kElements * matrix_floats(shape.filters, shape.channels) <= kTaskWeight;
  const int64_t at_once = alone ? own : lines_at_once(shape, kMaxFloats);
  const int64_t groups = (down + at_once - 1) / at_once;
  const TileLines largest(args, 0, 0, at_once);
  const int64_t values = kElements * largest.value_floats();
  const auto compute = [&](int64_t index, float* workspace) {
    const int64_t first = index % groups * at_once;
    const TileLines lines(args, index / groups, first, std::min(at_once, down - first));
    lines.transform(workspace);
    lines.multiply(workspace, workspace + values);
    lines.store(workspace + values);
  };
  const int64_t floats = padded_floats(1, values + kElements * largest.product_floats()),
                tasks = shape.batch * groups;
  if (alone) return parallel_tasks(tasks, floats, compute);
  const Scratch scratch(floats);
  for (int64_t i = 0; i < tasks; ++i) compute(i, scratch.data());
}

}  // namespace spark::cpu
