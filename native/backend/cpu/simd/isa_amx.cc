// isa_amx.cc: AMX: tdpbf16ps and tdpbusd on tiles of 16 rows of 16 groups. Two by two tiles of sums: 0 1 / 2
// 3, two of rows: 4 5, two of the panel: 6 7.
#include <immintrin.h>

#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

constexpr int64_t kSize = 16;  // rows and groups of a tile

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles for `upper` and `lower` rows of sums.
void configure(int64_t upper, int64_t lower) {
  TileConfig config;
  const int64_t rows[8] = {upper, upper, lower, lower, upper, lower, kSize, kSize};
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = static_cast<uint8_t>(rows[i]);
    config.row_bytes[i] = rows[i] ? 64 : 0;
  }
  _tile_loadconfig(&config);
}

struct Pairs {
  static void add_upper() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  static void add_lower() {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
};

struct Bytes {
  static void add_upper() {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
  }
  static void add_lower() {
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
};

struct SignedBytes {
  static void add_upper() {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
  }
  static void add_lower() {
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
};

// A block of up to 32 rows by 32 columns.
template <typename Kind, typename Sum>
void multiply_block(const uint32_t* rows, int64_t stride, bool has_lower, const uint32_t* panel,
                    int64_t groups, Sum* sums) {
  constexpr int64_t kSumBytes = kTile * sizeof(Sum), kPanelBytes = kPanelRows * 4;
  Sum* lower_sums = sums + kSize * kTile;
  _tile_loadd(0, sums, kSumBytes);
  _tile_loadd(1, sums + kSize, kSumBytes);
  if (has_lower) {
    _tile_loadd(2, lower_sums, kSumBytes);
    _tile_loadd(3, lower_sums + kSize, kSumBytes);
  }
  for (int64_t l = 0; l < groups; l += kSize) {
    _tile_loadd(6, panel + l * kPanelRows, kPanelBytes);
    _tile_loadd(7, panel + l * kPanelRows + kSize, kPanelBytes);
    _tile_loadd(4, rows + l, stride * 4);
    Kind::add_upper();
    if (!has_lower) continue;
    _tile_loadd(5, rows + kSize * stride + l, stride * 4);
    Kind::add_lower();
  }
  _tile_stored(0, sums, kSumBytes);
  _tile_stored(1, sums + kSize, kSumBytes);
  if (has_lower) {
    _tile_stored(2, lower_sums, kSumBytes);
    _tile_stored(3, lower_sums + kSize, kSumBytes);
  }
}

template <typename Kind, typename Sum>
void multiply_dot_groups(const uint32_t* rows, int64_t stride, int64_t m, const uint32_t* panel, int64_t,
                         int64_t groups, Sum* sums) {
  const int64_t whole = groups / kSize * kSize;
  // Rows go on with zeros beyond the last group; a panel does not.
  uint32_t rest[kSize * kPanelRows] = {};
  __builtin_memcpy(rest, panel + whole * kPanelRows, (groups - whole) * kPanelRows * 4);
  for (int64_t i = 0; i < m; i += 2 * kSize) {
    const int64_t upper = m - i < kSize ? m - i : kSize;
    const int64_t below = m - i - upper, lower = below < kSize ? below : kSize;
    if (i == 0 || upper + lower < 2 * kSize) configure(upper, lower);
    multiply_block<Kind>(rows + i * stride, stride, lower > 0, panel, whole, sums + i * kTile);
    if (groups > whole) {
      multiply_block<Kind>(rows + i * stride + whole, stride, lower > 0, rest, kSize, sums + i * kTile);
    }
  }
  _tile_release();
}

}  // namespace

const DotKernels amx_dot_kernels = {
    .bf16 = multiply_dot_groups<Pairs, float>,
    .bytes = multiply_dot_groups<Bytes, int32_t>,
    .signed_bytes = multiply_dot_groups<SignedBytes, int32_t>,
};

}  // namespace spark::cpu
