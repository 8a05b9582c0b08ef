// widest.h: which of the tables that are compiled once for each instruction set this machine runs.
#pragma once

#include "core/cpu_isa.h"

// Of a name that spark::cpu::plain has and, on x86-64, avx2 and avx512, too.
#if defined(__x86_64__)
#define SPARK_WIDEST(table) \
  (cpu_isa() == CpuIsa::kAvx512 ? avx512::table : cpu_isa() == CpuIsa::kAvx2 ? avx2::table : plain::table)
#else
#define SPARK_WIDEST(table) plain::table
#endif
