#include "backend/cpu/precision_loops.h"

#include "core/cpu_isa.h"

namespace spark::cpu {

const PrecisionLoops& precision_loops() {
#if defined(__x86_64__)
  if (cpu_isa() == CpuIsa::kAvx512) return avx512::kPrecisionLoops;
  if (cpu_isa() == CpuIsa::kAvx2) return avx2::kPrecisionLoops;
#endif
  return plain::kPrecisionLoops;
}

}  // namespace spark::cpu
