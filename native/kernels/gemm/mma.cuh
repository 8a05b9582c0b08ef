// mma.cuh: the tensor-core and copy instructions of PTX that the kernels use, sm_80 and later. Warp
// collectives: all 32 lanes call, convergently. In a lane g = lane / 4 and q = lane % 4; a register is a pair
// of bf16 or, where Number is F16, of f16, that of the lower index in its lower half.
// test/fixtures/cuda-on-host/mma.h defines the same functions for the host, from the layouts in the PTX
// manual.
#pragma once

#include <type_traits>

#include "core/float_formats.h"

namespace spark {

#ifdef __CUDACC__

// sums[16, 8] += a[16, 16] · b[16, 8] in f32. A lane holds, as (row, column):
//   a     (g, 2q), (g + 8, 2q), (g, 2q + 8), (g + 8, 2q + 8) and their right neighbours
//   b     (2q, g), (2q + 8, g) and their lower neighbours
//   sums  (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1)
template <typename Number = BF16>
__device__ void mma_16x8x16(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<Number, F16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <typename Byte>
constexpr char kByteType[3] = "u8";
template <>
inline constexpr char kByteType<int8_t>[3] = "s8";

// sums[16, 8] += a[16, 32] · b[32, 8] of int8_t or uint8_t, modulo 2^32. A register is four of them, the
// lowest index in its lowest bits. A lane holds, as (row, column):
//   a     (g, 4q), (g + 8, 4q), (g, 4q + 16), (g + 8, 4q + 16) and three neighbours on the right of each
//   b     (4q, g), (4q + 16, g) and three neighbours below each
//   sums  as above
template <typename Left, typename Right>
__device__ void mma_16x8x32(uint32_t (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.%10.%11.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "C"(kByteType<Left>),
        "C"(kByteType<Right>));
}

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Four 8 x 8 matrices of 16-bit numbers in shared memory: lanes 8i to 8i + 7 name the rows, 16 bytes each, of
// matrix i. A lane gets (g, 2q) and its right neighbour of each.
__device__ inline void load_matrices(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}

// The same, transposed: (2q, g) and its lower neighbour.
__device__ inline void load_matrices_transposed(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}

// Starts copying 4 bytes from global to shared memory, both aligned; zeros where `inside` is false.
__device__ inline void copy_async_4(void* shared, const void* global, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(inside ? 4 : 0)
               : "memory");
}

// The same with 16 bytes.
__device__ inline void copy_async(void* shared, const void* global, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(inside ? 16 : 0)
               : "memory");
}

// Ends a group of copies of this thread.
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all groups of this thread but the newest kPending.
template <int kPending>
__device__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Two f32 rounded to nearest even.
template <typename Number = BF16>
__device__ uint32_t round_pair(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<Number, F16>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// a · b of two pairs of bf16, each product rounded.
__device__ inline uint32_t multiply_pair(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}

#endif

}  // namespace spark
