// weight.cuh: the elements of a frozen weight (struct Weight of backend/backend.h), one reader per format:
// element() gives one, eight() those of [col, col + 8), zeros beyond the end of the row, code() an element
// without the scales of its row and of the tensor.
#pragma once

#include "backend/backend.h"
#include "backend/block_formats.h"
#include "core/float_formats.h"
#include "kernels/gemm/bytes.cuh"

namespace spark {

template <typename Format>
struct Plain {
  static __device__ float code(const Weight& weight, int64_t row, int64_t col) {
    return element(weight, row, col);
  }
  static __device__ float element(const Weight& weight, int64_t row, int64_t col) {
    return Format::decode(static_cast<const typename Format::Code*>(weight.data)[row * weight.cols + col]);
  }
  static __device__ void eight(const Weight& weight, int64_t row, int64_t col, float (&values)[8]) {
    using Code = typename Format::Code;
    Bytes<8 * sizeof(Code)> bytes;
    bytes.load(static_cast<const Code*>(weight.data) + row * weight.cols + col, weight.cols - col);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = Format::decode(bytes.template at<Code>(i));
  }
};

struct RowScaledE4M3 {
  static __device__ float code(const Weight& weight, int64_t row, int64_t col) {
    return Plain<E4M3>::element(weight, row, col);
  }
  static __device__ float element(const Weight& weight, int64_t row, int64_t col) {
    return code(weight, row, col) * weight.row_scale[row];
  }
  static __device__ void eight(const Weight& weight, int64_t row, int64_t col, float (&values)[8]) {
    Plain<E4M3>::eight(weight, row, col, values);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] *= weight.row_scale[row];
  }
};

struct RowScaledI8 {
  static __device__ float code(const Weight& weight, int64_t row, int64_t col) {
    return static_cast<const int8_t*>(weight.data)[row * weight.cols + col];
  }
  static __device__ float element(const Weight& weight, int64_t row, int64_t col) {
    return code(weight, row, col) * weight.row_scale[row];
  }
  static __device__ void eight(const Weight& weight, int64_t row, int64_t col, float (&values)[8]) {
    Bytes<8> bytes;
    bytes.load(static_cast<const int8_t*>(weight.data) + row * weight.cols + col, weight.cols - col);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = bytes.at<int8_t>(i) * weight.row_scale[row];
  }
};

struct Nvfp4 {
  static __device__ float code(const Weight& weight, int64_t row, int64_t col) {
    const int64_t at = row * weight.cols + col;
    const uint8_t pair = static_cast<const uint8_t*>(weight.data)[at / 2];
    return E2M1::decode(col % 2 ? pair >> 4 : pair & 15) * E4M3::decode(weight.block_scale[at / 16]);
  }
  static __device__ float element(const Weight& weight, int64_t row, int64_t col) {
    const int64_t at = row * weight.cols + col;
    const uint8_t pair = static_cast<const uint8_t*>(weight.data)[at / 2];
    const float scale = E4M3::decode(weight.block_scale[at / 16]) * weight.tensor_scale;
    return E2M1::decode(col % 2 ? pair >> 4 : pair & 15) * scale;
  }
  static __device__ void eight(const Weight& weight, int64_t row, int64_t col, float (&values)[8]) {
    const int64_t at = row * weight.cols + col;
    const bool inside = col < weight.cols;
    const float scale = inside ? E4M3::decode(weight.block_scale[at / 16]) * weight.tensor_scale : 0;
    Bytes<4> bytes;
    bytes.load(static_cast<const uint8_t*>(weight.data) + at / 2, inside ? 4 : 0);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = E2M1::decode(bytes.at<uint8_t>(i / 2) >> i % 2 * 4 & 15) * scale;
  }
};

// A format of block_formats.h.
template <typename Format>
struct InBlocks {
  static __device__ float element(const Weight& weight, int64_t row, int64_t col) {
    constexpr uint32_t kElements = Format::kElements;
    const uint64_t at = static_cast<uint64_t>(row) * weight.cols + col;
    return blocks::element_of<Format>(
        static_cast<const uint8_t*>(weight.data) + at / kElements * Format::kBytes,
        static_cast<int>(at % kElements));
  }
  // Rows end with a block. Not unrolled: eight decoders of each format would take minutes to compile.
  static __device__ void eight(const Weight& weight, int64_t row, int64_t col, float (&values)[8]) {
#pragma unroll 1
    for (int i = 0; i < 8; ++i) values[i] = col < weight.cols ? element(weight, row, col + i) : 0.0f;
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
