#include "backend/cpu/epilogue.h"

#include "backend/cpu/activation_loops.h"
#include "core/cpu_isa.h"

namespace spark::cpu {

void activate(Activation activation, int64_t count, float* values) {
#if defined(__x86_64__)
  if (cpu_isa() == CpuIsa::kAvx512) return avx512_activate(activation, count, values);
  if (cpu_isa() == CpuIsa::kAvx2) return avx2_activate(activation, count, values);
#endif
  plain_activate(activation, count, values);
}

}  // namespace spark::cpu
