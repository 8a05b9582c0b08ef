#include "backend/cpu/recurrent_loops.h"

#include "core/cpu_isa.h"

namespace spark::cpu {

const RecurrentLoops& recurrent_loops() {
#if defined(__x86_64__)
  if (cpu_isa() == CpuIsa::kAvx512) return avx512::kRecurrentLoops;
  if (cpu_isa() == CpuIsa::kAvx2) return avx2::kRecurrentLoops;
#endif
  return plain::kRecurrentLoops;
}

}  // namespace spark::cpu
