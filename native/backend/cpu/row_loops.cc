#include "backend/cpu/row_loops.h"

#include "core/cpu_isa.h"

namespace spark::cpu {

const RowLoops& row_loops() {
#if defined(__x86_64__)
  if (cpu_isa() == CpuIsa::kAvx512) return avx512::kRowLoops;
  if (cpu_isa() == CpuIsa::kAvx2) return avx2::kRowLoops;
#endif
  return plain::kRowLoops;
}

}  // namespace spark::cpu
