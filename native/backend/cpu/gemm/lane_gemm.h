// lane_gemm.h: products of small numbers that an instruction set multiplies by groups: two bf16 or four bytes
// lie in a lane of 32 bits, and dot(x, w) is the sum of their products.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm/gemm.h"

namespace spark::cpu {

constexpr int64_t kLanes = kChunk / 2;  // lanes of a chunk: 256 bf16 or 512 bytes
constexpr int64_t kLanePadding = 16;    // rows are padded with zeros to a multiple of so many lanes

// sums[i * kTile + j] += Σ_l dot(rows[i * stride + l], panel[l * kPanelRows + j]) for i < m <= kTile, j <
// cols
// <= kPanelRows, l < lanes <= kLanes; one chain of additions with rising l. The rest of the kPanelRows
// columns holds anything afterwards.
template <typename Sum>
using MultiplyLanes = void (*)(const uint32_t* rows, int64_t stride, int64_t m, const uint32_t* panel,
                               int64_t cols, int64_t lanes, Sum* sums);

struct LaneGemm {
  MultiplyLanes<float> bf16;  // null: not in this instruction set
  // modulo 2^32
  MultiplyLanes<int32_t> bytes;         // rows unsigned, panel signed
  MultiplyLanes<int32_t> signed_bytes;  // rows signed, panel unsigned
};

extern const LaneGemm plain_lanes, avx2_lanes, avx512_lanes, avx512bf16_lanes, amx_lanes, neon_lanes,
    neonbf16_lanes;

// That of this machine: what agrees with plain sums in a test at first use.
const LaneGemm& lane_gemm();

// The bf16 support of this machine: "matrix" (AMX), "simd" or "none".
const char* bf16_support();

// What that test found wrong, or "".
const char* lane_gemm_problem();

}  // namespace spark::cpu
