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

struct Choice {
  CpuIsa isa;
  CpuMatrixIsa matrix;
};

// A name stands for both; later ones include the earlier ones of their architecture.
constexpr struct {
  const char* name;
  Choice choice;
} kNames[] = {
    {"plain", {CpuIsa::kPlain, CpuMatrixIsa::kNone}},
    {"avx2", {CpuIsa::kAvx2, CpuMatrixIsa::kNone}},
    {"avx512", {CpuIsa::kAvx512, CpuMatrixIsa::kNone}},
    {"avx512-bf16", {CpuIsa::kAvx512, CpuMatrixIsa::kAvx512Bf16}},
    {"amx", {CpuIsa::kAvx512, CpuMatrixIsa::kAmx}},
    {"neon", {CpuIsa::kNeon, CpuMatrixIsa::kNone}},
    {"neon-bf16", {CpuIsa::kNeon, CpuMatrixIsa::kNeonBf16}},
};

#if defined(__x86_64__)

// Clang 14 does not know the name.
bool has_f16c() {
  uint32_t eax = 1, ebx, ecx = 0, edx;
  __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  return (ecx & 1u << 29) != 0;
}

bool machine_has(CpuIsa isa) {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
                    __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return isa == CpuIsa::kPlain || (isa == CpuIsa::kAvx2 && avx2) || (isa == CpuIsa::kAvx512 && avx512);
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

bool machine_has(CpuMatrixIsa matrix) {
  if (matrix == CpuMatrixIsa::kNone) return true;
  const bool avx512 = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
  if (matrix == CpuMatrixIsa::kAvx512Bf16) return avx512;
  uint32_t eax = 7, ebx, ecx = 0, edx;
  __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  constexpr uint32_t kTiles = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
  return matrix == CpuMatrixIsa::kAmx && avx512 && (edx & kTiles) == kTiles && may_use_tiles();
}

#elif defined(__aarch64__)

bool machine_has(CpuIsa isa) { return isa == CpuIsa::kPlain || isa == CpuIsa::kNeon; }

bool machine_has(CpuMatrixIsa matrix) {
#if defined(__linux__)
  constexpr unsigned long kI8mm = 1ul << 13, kBf16 = 1ul << 14;
  constexpr unsigned long kBoth = kI8mm | kBf16;
  if (matrix == CpuMatrixIsa::kNeonBf16) return (getauxval(AT_HWCAP2) & kBoth) == kBoth;
#endif
  return matrix == CpuMatrixIsa::kNone;
}

#else

bool machine_has(CpuIsa isa) { return isa == CpuIsa::kPlain; }
bool machine_has(CpuMatrixIsa matrix) { return matrix == CpuMatrixIsa::kNone; }

#endif

Choice choose() {
  const char* wanted = std::getenv("DGX_SPARK_CPU_ISA");
  Choice widest = kNames[0].choice;
  for (const auto& [name, choice] : kNames) {
    if (!machine_has(choice.isa) || !machine_has(choice.matrix)) continue;
    if (wanted && strcasecmp(wanted, name) == 0) return choice;
    widest = choice;
  }
  return widest;
}

const Choice& chosen() {
  static const Choice choice = choose();
  return choice;
}

}  // namespace

CpuIsa cpu_isa() { return chosen().isa; }
CpuMatrixIsa cpu_matrix_isa() { return chosen().matrix; }

const char* cpu_isa_name(CpuIsa isa, CpuMatrixIsa matrix) {
  for (const auto& [name, choice] : kNames) {
    if (choice.isa == isa && choice.matrix == matrix) return name;
  }
  return "plain";
}

}  // namespace spark
