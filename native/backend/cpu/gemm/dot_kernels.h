// dot_kernels.h: the micro-kernels of dot-product GEMM. Two bf16 or four bytes make a dot-product group of 32
// bits, and dot(x, w) is the sum of the products of two groups.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm/gemm_kernels.h"

namespace spark::cpu {

constexpr int64_t kDotGroups = kChunk / 2;  // groups of a chunk: 256 bf16 or 512 bytes
constexpr int64_t kDotGroupPadding = 16;    // rows are padded with zeros to a multiple of so many groups

// sums[i * kTile + j] += Σ_l dot(rows[i * stride + l], panel[l * kPanelRows + j]) for i < m <= kTile,
// j < cols <= kPanelRows and l < groups <= kDotGroups; one chain of additions with rising l. The rest of the
// kPanelRows columns holds anything afterwards.
template <typename Sum>
using MultiplyDots = void (*)(const uint32_t* rows, int64_t stride, int64_t m, const uint32_t* panel,
                              int64_t cols, int64_t groups, Sum* sums);

// sums[i * kPanelRows + j] = row i of x · row j of a panel in a block format with integer codes.
using MultiplyCodes = void (*)(const Weight& weight, int64_t panel, const IntegerRows& x, float* sums);

// In an extension of an instruction set null stands for the kernel of the one before it.
struct DotKernels {
  MultiplyDots<float> bf16 = nullptr;  // null: there is none
  MultiplyCodes codes = nullptr;
  // modulo 2^32
  MultiplyDots<int32_t> bytes = nullptr;         // rows unsigned, panel signed
  MultiplyDots<int32_t> signed_bytes = nullptr;  // rows signed, panel unsigned
};

}  // namespace spark::cpu
