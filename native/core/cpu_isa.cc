#include "core/cpu_isa.h"

#include <strings.h>

#include <cstdlib>

namespace spark {
namespace {

constexpr CpuIsa kAll[] = {CpuIsa::kPlain, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kNeon};

bool machine_has(CpuIsa isa) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return isa == CpuIsa::kPlain || (isa == CpuIsa::kAvx2 && avx2) || (isa == CpuIsa::kAvx512 && avx512);
#elif defined(__aarch64__)
  return isa == CpuIsa::kPlain || isa == CpuIsa::kNeon;
#else
  return isa == CpuIsa::kPlain;
#endif
}

CpuIsa choose() {
  const char* wanted = std::getenv("DGX_SPARK_CPU_ISA");
  CpuIsa widest = CpuIsa::kPlain;
  for (CpuIsa isa : kAll) {
    if (!machine_has(isa)) continue;
    if (wanted && strcasecmp(wanted, cpu_isa_name(isa)) == 0) return isa;
    widest = isa;
  }
  return widest;
}

}  // namespace

CpuIsa cpu_isa() {
  static const CpuIsa isa = choose();
  return isa;
}

const char* cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPlain:
      return "plain";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kNeon:
      return "neon";
  }
  return "plain";
}

}  // namespace spark
