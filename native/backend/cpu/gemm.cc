#include "backend/cpu/gemm.h"

#include <atomic>
#include <cstring>

namespace spark::cpu {
namespace {

struct Candidate {
  const Gemm& gemm;
  bool (*runs_here)();
};

// Best first.
const Candidate kCandidates[] = {
#if defined(__x86_64__)
    {avx512_gemm,
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
     }},
    {avx2_gemm, [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
#elif defined(__aarch64__)
    {neon_gemm, [] { return true; }},
#endif
    {plain_gemm, [] { return true; }},
};

const Gemm& find(const char* name) {
  const Gemm* best = nullptr;
  for (const auto& [gemm, runs_here] : kCandidates) {
    if (!runs_here()) continue;
    if (std::strcmp(gemm.name, name) == 0) return gemm;
    if (!best) best = &gemm;
  }
  return *best;
}

std::atomic<const Gemm*> current{nullptr};

}  // namespace

const Gemm& gemm() {
  if (!current) choose_gemm("");
  return *current;
}

void choose_gemm(const char* name) { current = &find(name); }

}  // namespace spark::cpu
