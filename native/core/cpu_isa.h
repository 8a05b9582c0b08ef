// cpu_isa.h: which instruction set the CPU kernels use.
//
// A kernel written for an instruction set lies in a translation unit of its own, named <kernel>_avx2.cc,
// <kernel>_avx512.cc or <kernel>_neon.cc; CMakeLists.txt compiles it with that instruction set, and only
// where the architecture has it. Such a file defines its functions in namespace spark::cpu::avx2 (avx512,
// neon) or in an unnamed namespace, and calls no inline function or template of another header, the standard
// library included: the linker keeps one copy of each, which might be the wide one, for everybody.
#pragma once

namespace spark {

// Every value includes what the ones before it of the same architecture can do.
enum class CpuIsa {
  kPlain,   // what the compiler assumes: SSE2 on x86-64, NEON on arm64
  kAvx2,    // x86-64-v3: AVX2, FMA, F16C
  kAvx512,  // x86-64-v4: AVX-512 F, BW, CD, DQ, VL
  kNeon,    // arm64, kernels written for it
};

// The widest set of this machine, or what DGX_SPARK_CPU_ISA=plain|avx2|avx512|neon asks for; a value that is
// unknown, or more than the machine has, changes nothing. The variable is read once.
CpuIsa cpu_isa();

// "plain", "avx2", "avx512" or "neon".
const char* cpu_isa_name(CpuIsa isa);

}  // namespace spark
