#include "backend/cpu/function_loops.h"

#include "core/cpu_isa.h"

namespace spark::cpu {

const FunctionLoops& function_loops() {
#if defined(__x86_64__)
  if (cpu_isa() == CpuIsa::kAvx512) return avx512::kFunctionLoops;
  if (cpu_isa() == CpuIsa::kAvx2) return avx2::kFunctionLoops;
#endif
  return plain::kFunctionLoops;
}

}  // namespace spark::cpu
