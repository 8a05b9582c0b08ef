#include "backend/cuda/tensor.h"

#include <string>

#include "backend/cuda/launch.h"

namespace spark::cuda {
namespace {

constexpr int kTile = 128, kThreads = 256;                  // tensor.cu
constexpr int64_t kFewRows = 16, kRowsOfFewBlock = 16;      // tensor_few.cu
constexpr int kPackThreads = 256, kSide = 32, kHeight = 8;  // pack.cu

// Lines along K in bf16, on the device.
class Packed {
 public:
  Packed(const Lines& lines, int64_t count, int64_t depth, const float* k_factor = nullptr)
      : memory_(count * padded_depth(depth) * sizeof(uint16_t)) {
    const PackArgs args{lines, count, depth, k_factor, data()};
    if (lines.k_stride == 1) {
      launch("pack", "pack_rows_bf16", Grid{ceil_div(count * padded_depth(depth) / 8, kPackThreads)},
             Threads{kPackThreads}, 0, args);
    } else {
      launch("pack", "pack_columns_bf16", Grid{ceil_div(count, kSide) * (padded_depth(depth) / kSide)},
             Threads{kSide, kHeight}, 0, args);
    }
  }
  uint16_t* data() const { return memory_.as<uint16_t>(); }

 private:
  Scratch memory_;
};

void launch_tensor(const ProductArgs& args, bool rows) {
  const bool few = rows && args.rows <= kFewRows;
  const bool row_scaled = args.w.dtype == DType::kF8E4M3 || args.w.dtype == DType::kI8;
  const Packed a(args.a, args.rows, args.depth, row_scaled && !rows ? args.w.row_scale : nullptr);
  const Packed a2(args.a2, args.rows, args.depth2), b2(args.b2, args.cols, args.depth2);
  const TensorArgs tensor{args.rows,   args.cols, args.depth, a.data(),     args.w,
                          args.depth2, a2.data(), b2.data(),  args.epilogue};
  const char* kernel = !rows            ? "tensor_backward_"
                       : !few           ? "tensor_"
                       : args.rows <= 8 ? "tensor_8_"
                                        : "tensor_16_";
  const int64_t blocks =
      few ? ceil_div(args.cols, kRowsOfFewBlock) : ceil_div(args.rows, kTile) * ceil_div(args.cols, kTile);
  launch(few ? "tensor_few" : "tensor", std::string(kernel) + dtype_name(args.w.dtype),
         Grid{args.rows ? blocks : 0}, Threads{kThreads}, 0, tensor);
}

}  // namespace

void launch_tensor_rows(const ProductArgs& args) { launch_tensor(args, true); }
void launch_tensor_columns(const ProductArgs& args) { launch_tensor(args, false); }

}  // namespace spark::cuda
