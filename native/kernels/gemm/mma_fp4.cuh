// mma_fp4.cuh: the tensor-core instruction for NVFP4 of compute capability 12.x, beside those of mma.cuh. It
// is there only in code for the family (compute_120f), which kernels.cmake asks for.
#pragma once

#include "kernels/gemm/mma.cuh"

namespace spark {

#ifdef __CUDACC__

// sums[16, 8] += a[16, 64] · b[64, 8] of E2M1, each 16 along K multiplied by an E4M3 scale of its row of a
// and one of its column of b, in f32. A register holds eight neighbours along K, the first in its lowest
// bits. A lane holds, as (row, column) with g and q of mma.cuh:
//   a     (g, 8q), (g + 8, 8q), (g, 8q + 32), (g + 8, 8q + 32)
//   b     (8q, g), (8q + 32, g)
//   sums  as in mma.cuh
// scale_a holds the four scales of row g where q is 0, of row g + 8 where it is 1, the first in its lowest
// byte; scale_b those of column g where q is 0. Those of other lanes do not matter.
__device__ inline void mma_16x8x64(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                   uint32_t scale_a, uint32_t scale_b) {
  asm volatile(
      "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {0, 0}, {%11}, {0, 0};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(scale_a), "r"(scale_b));
}

#endif

}  // namespace spark
