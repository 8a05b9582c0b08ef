// fp4_test.cc: self-tests of FP4 tensor cores in a child process.
#include "backend/cuda/gemm/fp4_test.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cuda/gemm/cublaslt.h"
#include "backend/cuda/gemm/fp4_product.h"
#include "backend/cuda/gemm/product.h"
#include "backend/cuda/quantize/nvfp4_rows.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/staging.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

constexpr int kFirstWithFp4 = 100, kFamilyOfOwn = 12;  // compute capabilities: 10.0, 12.x
// Two and three tiles of 128, six along K, the last of each full in part.
constexpr int64_t kTokens = 213, kRows = 272, kCols = 704, kBlocks = kCols / kNvfp4Block;

// The test problem: codes and scales are drawn for each place, so that a tile, a block or a scale in the
// place of another shows. Everything is exact: codes count halves, scales are powers of two within 2^2 of
// each other but for one block of x, so that every sum is a whole number of units below 2^24.
class Problem {
 public:
  Problem() : x(kTokens * kCols), y(kTokens * kRows), data(kRows * kCols / 2), block_scale(kRows * kBlocks) {
    for (int64_t block = 0; block < kTokens * kBlocks; ++block) {
      const int row = static_cast<int>(block / kBlocks);
      fill(&x[block * kNvfp4Block],
           std::ldexp(drawn_scale(), row % 3));  // a row scale in the place of another
    }
    constexpr int64_t kLargest = 150 * kBlocks + 40;  // in the second tile of rows, the last along K
    fill(&x[kLargest * kNvfp4Block], 448);            // the largest scale there is
    for (uint8_t& pair : data) pair = static_cast<uint8_t>(next());
    for (uint8_t& scale : block_scale) scale = static_cast<uint8_t>(0x38 + next() % 3 * 8);  // 1, 2 or 4
    LinearArgs args{};
    args.weight = weight(data.data(), block_scale.data());
    args.tokens = kTokens;
    args.x = x.data();
    args.compute = Compute::kNVFP4;
    args.y = y.data();
    cpu::linear(args);
  }

  Weight weight(const void* data, const uint8_t* block_scale) const {
    return {DType::kNVFP4, kRows, kCols, data, nullptr, block_scale, 0.25f, false};
  }

  std::vector<float> x, y;
  std::vector<uint8_t> data, block_scale;

 private:
  uint32_t next() { return (state_ = state_ * 1664525u + 1013904223u) >> 16; }
  float drawn_scale() { return std::ldexp(64.0f, static_cast<int>(next() % 3)); }

  // A block that is quantized to itself: the largest code is in it.
  void fill(float* block, float scale) {
    constexpr float kTensorScale = 0x1p-12f;
    for (int i = 0; i < kNvfp4Block; ++i) block[i] = E2M1::decode(next() & 15) * scale * kTensorScale;
    block[next() % kNvfp4Block] = (next() & 1 ? -6 : 6) * scale * kTensorScale;
  }

  uint32_t state_ = 1;
};

std::string difference(const Problem& problem, const float* y) {
  for (size_t at = 0; at < problem.y.size(); ++at) {
    if (y[at] == problem.y[at]) continue;
    return message("differs from the CPU: y[", at / kRows, ", ", at % kRows, "] is ", y[at],
                   " and should be ", problem.y[at]);
  }
  return "";
}

std::optional<std::string> try_way(Device& device, const Problem& problem, Fp4Ways way) {
  const std::vector<float> nothing(kTokens * kRows, NAN);
  Staging staging(device);
  const auto put = [&](const auto& values, Access access) {
    return staging.add(values.data(), values.size() * sizeof values[0], access);
  };
  const auto* x = static_cast<float*>(put(problem.x, Access::kRead));
  const void* data = put(problem.data, Access::kRead);
  const auto* scales = static_cast<uint8_t*>(put(problem.block_scale, Access::kRead));
  const size_t result = staging.size();
  auto* y = static_cast<float*>(put(nothing, Access::kReadWrite));
  const ProductArgs product = with_rows(kTokens, rows_of(x, kCols), problem.weight(data, scales), y);
  const Nvfp4Activation codes(Nvfp4Form::kCodes, x, kTokens, kCols);
  if (!launch_fp4(product, codes.rows(), way)) return std::nullopt;
  staging.fetch();
  staging.wait();
  return difference(problem, static_cast<const float*>(staging.written(result)));
}

}  // namespace

std::optional<std::string> test_fp4(int ordinal, Fp4Ways way) {
  Device& device = Device::open(ordinal);
  const DeviceScope scope(device);
  const int capability = device.attributes.compute_capability;
  if (capability < kFirstWithFp4 || (way.own && capability / 10 != kFamilyOfOwn)) return std::nullopt;
  if (way.cublaslt) prepare_cublaslt(device);
  const Problem problem;
  try {
    return try_way(device, problem, way);
  } catch (const Error& error) {
    if (std::string_view(error.code) == "ERR_OUT_OF_MEMORY") throw;
    return message("failed: ", error.what());
  }
}

}  // namespace spark::cuda
