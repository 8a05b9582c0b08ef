#include "backend/cuda/fp4_test.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cuda/device.h"
#include "backend/cuda/product.h"
#include "backend/cuda/staging.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

constexpr int kFirstWithFp4 = 100, kFamilyOfOwn = 12;  // compute capabilities: 10.0, 12.x
// Beyond a tile of 128 columns, the last tile along K half full.
constexpr int64_t kTokens = 37, kRows = 144, kCols = 160;
// Of the largest result: hardware may drop the last bits of a sum. Scales in a wrong place are far beyond it.
constexpr float kTolerance = 2e-3f;

// The test problem: every block has another scale.
struct Problem {
  std::vector<float> x, y;
  std::vector<uint8_t> data, block_scale;

  Problem()
      : x(kTokens * kCols), y(kTokens * kRows), data(kRows * kCols / 2), block_scale(kRows * kCols / 16) {
    uint32_t state = 1;
    const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 16; };
    for (float& value : x) value = std::ldexp(static_cast<float>(next()) - 32768, -15 - int(next() % 5));
    for (uint8_t& pair : data) pair = static_cast<uint8_t>(next());
    for (uint8_t& scale : block_scale) scale = static_cast<uint8_t>(0x28 + next() % 0x18);
  }
  Weight weight(const void* data, const uint8_t* block_scale) const {
    return {DType::kNVFP4, kRows, kCols, data, nullptr, block_scale, 0.37f, false};
  }
  void on_cpu() {
    LinearArgs args{};
    args.weight = weight(data.data(), block_scale.data());
    args.tokens = kTokens;
    args.x = x.data();
    args.compute = Compute::kNVFP4;
    args.y = y.data();
    cpu::linear(args);
  }
};

enum class Verdict { kAgrees, kMissing, kWrong };

struct Outcome {
  Verdict verdict = Verdict::kMissing;
  std::string text;  // what is wrong
};

Outcome compare(const Problem& problem, const float* y) {
  float largest = 0;
  for (const float value : problem.y) largest = std::fmax(largest, std::fabs(value));
  for (size_t at = 0; at < problem.y.size(); ++at) {
    if (std::fabs(y[at] - problem.y[at]) <= kTolerance * largest) continue;
    return {Verdict::kWrong, message("differs from the CPU: y[", at / kRows, ", ", at % kRows, "] is ", y[at],
                                     " and should be ", problem.y[at])};
  }
  return {Verdict::kAgrees, ""};
}

Outcome try_way(Device& device, const Problem& problem, Fp4Ways way) {
  try {
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
    if (!launch_fp4(with_rows(kTokens, rows_of(x, kCols), problem.weight(data, scales), y), way)) return {};
    staging.fetch();
    staging.wait();
    return compare(problem, static_cast<const float*>(staging.written(result)));
  } catch (const Error& error) {
    return {Verdict::kWrong, message("failed: ", error.what())};
  }
}

bool turned_off() {
  const char* wanted = std::getenv("DGX_SPARK_NVFP4");
  return wanted && std::string_view(wanted) == "0";
}

struct State {
  Fp4Ways ways;
  std::string problem;
};

// By the device's number and not its object: a test that ruined the context is not tried again.
struct States {
  std::mutex mutex;
  std::map<int, State> of;

  static States& get() {
    static States* states = new States;  // leaked: used until the process is gone
    return *states;
  }
};

std::string describe(int ordinal, const Outcome& own, const Outcome& cublaslt) {
  const bool usable = own.verdict == Verdict::kAgrees || cublaslt.verdict == Verdict::kAgrees;
  if (usable && own.verdict != Verdict::kWrong && cublaslt.verdict != Verdict::kWrong) return "";
  std::string text = message("FP4 tensor cores of CUDA device ", ordinal, ": ");
  if (own.verdict == Verdict::kWrong) text += message("our kernel ", own.text, ". ");
  if (cublaslt.verdict == Verdict::kWrong) text += message("cuBLASLt ", cublaslt.text, ". ");
  if (own.verdict == Verdict::kMissing && cublaslt.verdict == Verdict::kMissing) {
    text += "neither this addon nor cuBLASLt has products for them. ";
  }
  text += "Products with compute 'nvfp4' are formed ";
  if (own.verdict == Verdict::kAgrees) return text + "by our kernel.";
  if (cublaslt.verdict == Verdict::kAgrees) return text + "by cuBLASLt.";
  return text + "on its tensor cores for bf16, of the same numbers.";
}

void test(Device& device, State& state) {
  const int capability = device.attributes.compute_capability;
  if (capability < kFirstWithFp4 || turned_off()) return;
  Problem problem;
  problem.on_cpu();
  Outcome own;
  if (capability / 10 == kFamilyOfOwn) own = try_way(device, problem, {.own = true});
  const Outcome cublaslt = try_way(device, problem, {.cublaslt = true});
  state.ways = {own.verdict == Verdict::kAgrees, cublaslt.verdict == Verdict::kAgrees};
  state.problem = describe(device.ordinal, own, cublaslt);
}

}  // namespace

Fp4Ways tested_fp4_ways() {
  Device& device = Device::current();
  States& states = States::get();
  std::lock_guard lock(states.mutex);
  const auto [found, is_new] = states.of.try_emplace(device.ordinal);
  if (is_new) test(device, found->second);
  return found->second.ways;
}

std::string fp4_problem(int ordinal) {
  States& states = States::get();
  std::lock_guard lock(states.mutex);
  const auto found = states.of.find(ordinal);
  return found == states.of.end() ? "" : found->second.problem;
}

}  // namespace spark::cuda
