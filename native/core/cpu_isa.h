// cpu_isa.h: the instruction sets of CPU kernels.
//
// Each has one translation unit, backend/cpu/simd/isa_<unit>.cc, which cpu_isa.cmake compiles with that
// instruction set, and only where the architecture has it. Such a unit defines its functions in unnamed
// namespaces and calls nothing of a header that is not always inlined, the standard library included: the
// linker keeps one copy of each inline function, which might be the wide one, for everybody.
#pragma once

// The instruction sets of this architecture, each of which includes those before it:
//   BASE(enumerator, name, unit)              one with kernels for everything
//   EXTENSION(enumerator, name, unit, base)   one with a dot-product GEMM of its own beside the kernels of a
//   base
#if defined(__x86_64__)
#define SPARK_CPU_ISAS(BASE, EXTENSION)                                                                \
  BASE(kPlain, "plain", plain)                              /* SSE2 */                                 \
  BASE(kAvx2, "avx2", avx2)                                 /* x86-64-v3: AVX2, FMA, F16C */           \
  BASE(kAvx512, "avx512", avx512)                           /* x86-64-v4: AVX-512 F, BW, CD, DQ, VL */ \
  EXTENSION(kAvx512Bf16, "avx512-bf16", avx512bf16, avx512) /* AVX-512 BF16 and VNNI */                \
  EXTENSION(kAmx, "amx", amx, avx512)                       /* tiles of bf16 and bytes */
#elif defined(__aarch64__)
#define SPARK_CPU_ISAS(BASE, EXTENSION)                                                 \
  BASE(kPlain, "plain", plain)                      /* NEON, as the compiler uses it */ \
  BASE(kNeon, "neon", neon)                         /* kernels written for it */        \
  EXTENSION(kNeonBf16, "neon-bf16", neonbf16, neon) /* BF16 */                          \
  EXTENSION(kNeonI8mm, "neon-i8mm", neoni8mm, neon) /* BF16 and I8MM */
#else
#define SPARK_CPU_ISAS(BASE, EXTENSION) BASE(kPlain, "plain", plain)
#endif

namespace spark {

enum class CpuIsa {
#define SPARK_ENUMERATOR(enumerator, ...) enumerator,
  SPARK_CPU_ISAS(SPARK_ENUMERATOR, SPARK_ENUMERATOR)
#undef SPARK_ENUMERATOR
};

// The widest instruction set of this machine, or the one whose name DGX_SPARK_CPU_ISA is; a value that is
// unknown, or more than the machine has, changes nothing. The variable is read once.
CpuIsa cpu_isa();

const char* cpu_isa_name(CpuIsa isa);

}  // namespace spark
