#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"

namespace spark::cuda {
namespace {

constexpr int kThreads = 256;  // as in kernels/fp8.cu

}  // namespace

void fp8_quantize(const Fp8QuantizeArgs& args) {
  launch("fp8", std::string("fp8_quantize_") + dtype_name(args.src_dtype), Grid{args.rows}, Threads{kThreads},
         0, args.src, args.cols, args.codes, args.row_scale);
}

}  // namespace spark::cuda
