// cpu_kernels.cc: selection of the kernel table for the instruction set in use.
#include "backend/cpu/simd/cpu_kernels.h"

#include <string>

#include "backend/cpu/gemm/dot_self_test.h"

namespace spark::cpu {
namespace {

struct Unit {
  CpuIsa isa;
  const CpuKernels& base;
  const DotKernels* extension;  // null: base.dot
};

// In the order of CpuIsa.
const Unit kUnits[] = {
#define SPARK_BASE(enumerator, name, unit) {CpuIsa::enumerator, unit##_kernels, nullptr},
#define SPARK_EXTENSION(enumerator, name, unit, base) \
  {CpuIsa::enumerator, base##_kernels, &unit##_dot_kernels},
    SPARK_CPU_ISAS(SPARK_BASE, SPARK_EXTENSION)
#undef SPARK_BASE
#undef SPARK_EXTENSION
};

// What an extension leaves null is that of the unit before it.
DotKernels dot_kernels(const Unit* unit) {
  if (!unit->extension) return unit->base.dot;
  const DotKernels before = dot_kernels(unit - 1), &own = *unit->extension;
  return {
      .bf16 = own.bf16 ? own.bf16 : before.bf16,
      .codes = own.codes ? own.codes : before.codes,
      .bytes = own.bytes ? own.bytes : before.bytes,
      .signed_bytes = own.signed_bytes ? own.signed_bytes : before.signed_bytes,
  };
}

struct Selection {
  CpuKernels kernels;
  CpuIsa dot_isa;
  std::string problem;
};

Selection select() {
  const CpuIsa isa = cpu_isa();
  const Unit* unit = &kUnits[static_cast<size_t>(isa)];
  Selection selection{unit->base, isa, ""};
  while (unit->extension && !passes_self_test(*unit->extension)) --unit;
  if (unit->isa != isa) {
    selection.problem = std::string("sums of products in ") + cpu_isa_name(isa) +
                        " are wrong on this machine; " + cpu_isa_name(unit->isa) + " is used for them";
  }
  selection.dot_isa = unit->isa;
  selection.kernels.dot = dot_kernels(unit);
  return selection;
}

const Selection& selection() {
  static const Selection selected = select();
  return selected;
}

}  // namespace

const CpuKernels& kernels() { return selection().kernels; }

const char* cpu_isa_problem() { return selection().problem.c_str(); }

const char* bf16_support() {
#if defined(__x86_64__)
  if (selection().dot_isa == CpuIsa::kAmx) return "matrix";
#endif
  return kernels().dot.bf16 ? "simd" : "none";
}

}  // namespace spark::cpu
