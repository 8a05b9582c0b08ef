#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"

namespace spark::cuda {
namespace {

constexpr int kThreads = 256;  // as in kernels/fp8.cu

}  // namespace

void fp8_quantize(const Fp8QuantizeArgs& args) {
  launch("fp8", std::string("fp8_quantize_") + dtype_name(args.src_dtype),
         Grid{ceil_div(args.rows, args.block_rows) * ceil_div(args.cols, args.block_cols)}, Threads{kThreads},
         0, args.src, args.rows, args.cols, args.block_rows, args.block_cols, args.codes, args.scale);
}

}  // namespace spark::cuda
