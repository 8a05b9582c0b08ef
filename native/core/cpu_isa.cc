// cpu_isa.cc: detection of the instruction set of this CPU.
#include "core/cpu_isa.h"

#include <strings.h>

#include <cstdint>
#include <cstdlib>
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace spark {
namespace {

struct Entry {
  CpuIsa isa;
  const char* name;
};

constexpr Entry kIsas[] = {
#define SPARK_ENTRY(enumerator, name, ...) {CpuIsa::enumerator, name},
    SPARK_CPU_ISAS(SPARK_ENTRY, SPARK_ENTRY)
#undef SPARK_ENTRY
};

#if defined(__x86_64__)

// Clang 14 does not know the name.
bool has_f16c() {
  uint32_t eax = 1, ebx, ecx = 0, edx;
  __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  return (ecx & 1u << 29) != 0;
}

// Linux hands out the tile registers to a process that asks for them.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
         __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

bool has_amx() {
  uint32_t eax = 7, ebx, ecx = 0, edx;
  __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  constexpr uint32_t kTiles = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
  return (edx & kTiles) == kTiles && may_use_tiles();
}

// Whether the machine has what `isa` adds to the one before it.
bool machine_adds(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPlain:
      return true;
    case CpuIsa::kAvx2:
      return has_avx2();
    case CpuIsa::kAvx512:
      return has_avx512();
    case CpuIsa::kAvx512Bf16:
      return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    case CpuIsa::kAmx:
      return has_amx();
  }
  return false;
}

#elif defined(__aarch64__)

// Whether Linux lists all these features of the second word.
bool has_features(unsigned long features) {
#if defined(__linux__)
  return (getauxval(AT_HWCAP2) & features) == features;
#else
  return features == 0;
#endif
}

bool machine_adds(CpuIsa isa) {
  constexpr unsigned long kI8mm = 1ul << 13, kBf16 = 1ul << 14;
  switch (isa) {
    case CpuIsa::kPlain:
    case CpuIsa::kNeon:
      return true;
    case CpuIsa::kNeonBf16:
      return has_features(kBf16);
    case CpuIsa::kNeonI8mm:
      return has_features(kI8mm);
  }
  return false;
}

#else

bool machine_adds(CpuIsa) { return true; }

#endif

CpuIsa choose() {
  const char* wanted = std::getenv("DGX_SPARK_CPU_ISA");
  CpuIsa widest = CpuIsa::kPlain;
  for (const auto& [isa, name] : kIsas) {
    if (!machine_adds(isa)) break;
    if (wanted && strcasecmp(wanted, name) == 0) return isa;
    widest = isa;
  }
  return widest;
}

}  // namespace

CpuIsa cpu_isa() {
  static const CpuIsa chosen = choose();
  return chosen;
}

const char* cpu_isa_name(CpuIsa isa) { return kIsas[static_cast<size_t>(isa)].name; }

}  // namespace spark
