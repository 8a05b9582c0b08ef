#include "backend/cpu/byte_loops.h"

#include "core/cpu_isa.h"

namespace spark::cpu {

const ByteLoops& byte_loops() {
#if defined(__x86_64__)
  if (cpu_isa() == CpuIsa::kAvx512) return avx512::kByteLoops;
  if (cpu_isa() == CpuIsa::kAvx2) return avx2::kByteLoops;
#endif
  return plain::kByteLoops;
}

}  // namespace spark::cpu
