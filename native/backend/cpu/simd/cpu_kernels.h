// cpu_kernels.h: the table of kernels that are compiled once per instruction set.
#pragma once

#include "backend/cpu/conv/conv_kernels.h"
#include "backend/cpu/gemm/dot_kernels.h"
#include "backend/cpu/gemm/gemm_kernels.h"
#include "backend/cpu/ops/pool_kernels.h"
#include "backend/cpu/simd/byte_kernels.h"
#include "backend/cpu/simd/elementwise_kernels.h"
#include "backend/cpu/simd/precision_kernels.h"
#include "backend/cpu/simd/recurrent_kernels.h"
#include "backend/cpu/simd/row_kernels.h"
#include "core/cpu_isa.h"

namespace spark::cpu {

struct CpuKernels {
  GemmKernels gemm;
  DotKernels dot;
  ConvKernels conv;
  PoolKernels pool;
  RowKernels rows;
  ElementwiseKernels elementwise;
  RecurrentKernels recurrent;
  PrecisionKernels precision;
  ByteKernels bytes;
};

// Those of cpu_isa(). Where its dot-product GEMM fails a self-test at first use, that of a narrower
// instruction set takes its place.
const CpuKernels& kernels();

// What that test found wrong, or "".
const char* cpu_isa_problem();

// The bf16 support of this machine: "matrix" (AMX), "simd" or "none".
const char* bf16_support();

// What simd/isa_<unit>.cc defines: <unit>_kernels, or for an extension of a base <unit>_dot_kernels.
#define SPARK_DECLARE_BASE(enumerator, name, unit) extern const CpuKernels unit##_kernels;
#define SPARK_DECLARE_EXTENSION(enumerator, name, unit, base) extern const DotKernels unit##_dot_kernels;
SPARK_CPU_ISAS(SPARK_DECLARE_BASE, SPARK_DECLARE_EXTENSION)
#undef SPARK_DECLARE_BASE
#undef SPARK_DECLARE_EXTENSION

}  // namespace spark::cpu
