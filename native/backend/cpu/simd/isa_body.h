// isa_body.h: the kernels of one instruction set as a table. Included last by each base unit (isa_plain.cc,
// isa_avx2.cc, isa_avx512.cc, isa_neon.cc), which has put into unnamed namespaces of spark::cpu
//   vec   its vectors of f32 and gemm_body.h
//   dot   the dot-product GEMM, kKernels
// Everything here lies in unnamed namespaces, too (core/cpu_isa.h says why).
#include "backend/cpu/simd/byte_kernels_body.h"
#include "backend/cpu/simd/elementwise_kernels_body.h"
#include "backend/cpu/simd/precision_kernels_body.h"
#include "backend/cpu/simd/recurrent_kernels_body.h"
#include "backend/cpu/simd/row_kernels_body.h"

namespace spark::cpu {
namespace {

constexpr CpuKernels kCpuKernels = {
    .gemm = vec::kGemmKernels,
    .dot = dot::kKernels,
    .conv = vec::kConvKernels,
    .pool = vec::kPoolKernels,
    .rows = rows::kKernels,
    .elementwise = elementwise::kKernels,
    .recurrent = recurrent::kKernels,
    .precision = precision::kKernels,
    .bytes = bytes::kKernels,
};

}  // namespace
}  // namespace spark::cpu
