// conv_bf16.cc: convolutions as dot-product GEMM in bf16.
#include "backend/cpu/conv/conv_bf16.h"

#include "backend/cpu/conv/conv_dot_gemm.h"
#include "backend/cpu/gemm/dot_gemm.h"
#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

// The filters as rows of bf16.
class DotRows {
 public:
  DotRows(const Weight& weight, int64_t dot_groups) : stride_(padded_dot_groups(dot_groups)) {
    const bool in_place = weight.dtype == DType::kBF16 && !weight.packed && weight.cols == 2 * stride_ &&
                          reinterpret_cast<uintptr_t>(weight.data) % alignof(uint32_t) == 0;
    if (in_place) {
      data_ = static_cast<const uint32_t*>(weight.data);
      return;
    }
    std::unique_ptr<float[]> storage;
    const Weight values = decoded(weight, storage);
    own_ = round_rows(static_cast<const float*>(values.data), weight.rows, weight.cols, stride_);
    data_ = own_.data();
  }

  int64_t stride() const { return stride_; }
  const uint32_t* row(int64_t o) const { return data_ + o * stride_; }

 private:
  int64_t stride_;
  std::vector<uint32_t> own_;
  const uint32_t* data_;
};

void pack_pairs(const float* const (&rows)[2], int64_t count, uint32_t* to) {
  kernels().precision.bf16_pairs(rows[0], rows[1], count, to);
}

class Product {
 public:
  Product(const ConvArgs& args, const ConvReading& reading)
      : args_(args),
        positions_(numel(args.shape.out)),
        gemm_(args.shape, reading),
        rows_(args.weight, gemm_.dot_groups()) {}

  // Images [first, first + count), whose planes begin at `data`.
  void run(int64_t first, int64_t count, const float* data) const {
    gemm_.for_each_tile(first, count, data, [&](const ConvTile& tile, const float* planes, uint32_t* panels) {
      compute(tile, planes, panels);
    });
  }

 private:
  void compute(const ConvTile& tile, const float* data, uint32_t* panels) const {
    alignas(64) float sums[kRowsAtOnce * kTile];
    gemm_.for_each_panel(tile, panels, [&](int64_t at, int64_t count, uint32_t* panel) {
      gemm_.pack(tile.col + at, count, data, pack_pairs, panel);
    });
    const Epilogue to = epilogue(tile);
    for (int64_t done = 0; done < tile.rows; done += kRowsAtOnce) {
      const int64_t some = std::min(kRowsAtOnce, tile.rows - done);
      std::fill_n(sums, some * kTile, 0.0f);
      gemm_.for_each_panel(tile, panels, [&](int64_t at, int64_t count, const uint32_t* panel) {
        gemm_.multiply(kernels().dot.bf16, rows_.row(tile.row + done), rows_.stride(), some, panel, count,
                       sums + at);
      });
      apply_epilogue(sums, kTile, some, tile.cols, epilogue_at(to, done, 0));
    }
  }

  // What the sums of a tile become.
  Epilogue epilogue(const ConvTile& tile) const {
    Epilogue to{args_.bias, args_.residual, args_.residual_first, args_.activation, args_.y, positions_};
    to = epilogue_at(to, tile.row, tile.col);
    const int64_t image = tile.image * args_.shape.filters * positions_;
    if (to.residual) to.residual += image;
    to.y += image;
    return to;
  }

  const ConvArgs& args_;
  int64_t positions_;
  ConvDotGemm<float, 2> gemm_;
  DotRows rows_;
};

}  // namespace

bool takes_bf16(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  return args.compute == Compute::kBF16 && kernels().dot.bf16 &&
         !loops_over(shape.groups, shape.filters / shape.groups);
}

void conv_bf16(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  const ConvReading reading(shape);
  const Product product(args, reading);
  const PaddedInput& input = reading.input();
  const int64_t pixels = numel(shape.image);
  const auto fill = [&](int64_t first, int64_t count, float* planes) {
    for (int64_t c = 0; c < count; ++c) {
      input.fill(args.x + (first + c) * pixels, planes + c * input.plane());
    }
  };
  for_each_padded(shape, input, args.x, fill,
                  [&](int64_t first, int64_t count, const float* data) { product.run(first, count, data); });
}

}  // namespace spark::cpu
