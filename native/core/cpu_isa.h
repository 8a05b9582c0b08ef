// cpu_isa.h: which instruction set the CPU kernels use.
//
// A kernel written for an instruction set lies in a translation unit of its own, named <kernel>_avx2.cc,
// <kernel>_avx512.cc, <kernel>_avx512bf16.cc, <kernel>_amx.cc, <kernel>_neon.cc or <kernel>_neonbf16.cc;
// CMakeLists.txt compiles it with that instruction set, and only where the architecture has it. Such a file
// defines its functions in namespace spark::cpu::avx2 (avx512, neon, …) or in an unnamed namespace, and calls
// nothing of a header that is not always inlined, the standard library included: the linker keeps one copy of
// each inline function, which might be the wide one, for everybody.
#pragma once

namespace spark {

// Every value includes what the ones before it of the same architecture can do.
enum class CpuIsa {
  kPlain,   // what the compiler assumes: SSE2 on x86-64, NEON on arm64
  kAvx2,    // x86-64-v3: AVX2, FMA, F16C
  kAvx512,  // x86-64-v4: AVX-512 F, BW, CD, DQ, VL
  kNeon,    // arm64, kernels written for it
};

// What the machine has beyond that for products of 16-bit and 8-bit numbers.
enum class CpuMatrixIsa {
  kNone,
  kAvx512Bf16,  // AVX-512 BF16 and VNNI
  kAmx,         // AMX tiles of bf16 and bytes, and the former
  kNeonBf16,    // arm64 BF16 and I8MM
};

// The widest sets of this machine, or what DGX_SPARK_CPU_ISA=plain|avx2|avx512|avx512-bf16|amx|neon|neon-bf16
// asks for; a value that is unknown, or more than the machine has, changes nothing. The variable is read
// once.
CpuIsa cpu_isa();
CpuMatrixIsa cpu_matrix_isa();

// Both as one of the names above.
const char* cpu_isa_name(CpuIsa isa, CpuMatrixIsa matrix);

}  // namespace spark
