// weight.cuh: the elements of a frozen weight (struct Weight of backend/backend.h), one reader per format.
#pragma once

#include "backend/backend.h"
#include "core/float_formats.h"

namespace spark {

template <typename Format>
struct Plain {
  static __device__ float element(const Weight& weight, int64_t row, int64_t col) {
    return Format::decode(static_cast<const typename Format::Code*>(weight.data)[row * weight.cols + col]);
  }
};

struct RowScaledE4M3 {
  static __device__ float element(const Weight& weight, int64_t row, int64_t col) {
    return Plain<E4M3>::element(weight, row, col) * weight.row_scale[row];
  }
};

struct RowScaledI8 {
  static __device__ float element(const Weight& weight, int64_t row, int64_t col) {
    return static_cast<const int8_t*>(weight.data)[row * weight.cols + col] * weight.row_scale[row];
  }
};

struct Nvfp4 {
  static __device__ float element(const Weight& weight, int64_t row, int64_t col) {
    const int64_t at = row * weight.cols + col;
    const uint8_t pair = static_cast<const uint8_t*>(weight.data)[at / 2];
    const float scale = E4M3::decode(weight.block_scale[at / 16]) * weight.tensor_scale;
    return E2M1::decode(col % 2 ? pair >> 4 : pair & 15) * scale;
  }
};

}  // namespace spark

// SPARK_FOR_EACH_WEIGHT(DEFINE): DEFINE(dtype name, reader) for every format.
#define SPARK_FOR_EACH_WEIGHT(DEFINE)     \
  DEFINE(f32, spark::Plain<spark::F32>)   \
  DEFINE(f16, spark::Plain<spark::F16>)   \
  DEFINE(bf16, spark::Plain<spark::BF16>) \
  DEFINE(f8_e4m3, spark::RowScaledE4M3)   \
  DEFINE(nvfp4, spark::Nvfp4)             \
  DEFINE(i8, spark::RowScaledI8)
