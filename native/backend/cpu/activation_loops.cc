#include "backend/cpu/activation_loops.h"

#include "core/cpu_isa.h"

namespace spark::cpu {

Activate activate() {
#if defined(__x86_64__)
  if (cpu_isa() == CpuIsa::kAvx512) return avx512_activate;
  if (cpu_isa() == CpuIsa::kAvx2) return avx2_activate;
#endif
  return plain_activate;
}

}  // namespace spark::cpu
