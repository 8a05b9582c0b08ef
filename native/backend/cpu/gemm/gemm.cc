#include "backend/cpu/gemm/gemm.h"

#include "core/cpu_isa.h"

namespace spark::cpu {

const Gemm& gemm() {
#if defined(__x86_64__)
  if (cpu_isa() == CpuIsa::kAvx512) return avx512_gemm;
  if (cpu_isa() == CpuIsa::kAvx2) return avx2_gemm;
#elif defined(__aarch64__)
  if (cpu_isa() == CpuIsa::kNeon) return neon_gemm;
#endif
  return plain_gemm;
}

}  // namespace spark::cpu
