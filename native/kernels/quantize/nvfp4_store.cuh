// nvfp4_store.cuh: stores of rows that are rounded to NVFP4 (struct Nvfp4Rows of product_args.h).
#pragma once

#include "core/quantizers.h"
#include "kernels/gemm/product_args.h"
#include "kernels/store.cuh"

namespace spark {

// Stores of a row in NVFP4, an element in each lane, 16 of which have a block.
struct Nvfp4Store {
  const Nvfp4Rows& to;
  int64_t row;
  float tensor_scale;

  // The code of an element, and the scale of its block. All lanes of a warp must call it.
  __device__ uint32_t quantize(float value, uint32_t& scale) const {
    uint32_t largest = float_bits(value) & 0x7FFFFFFFu;
    for (int offset = kNvfp4Block / 2; offset > 0; offset /= 2) {
      largest = max(largest, __shfl_xor_sync(0xFFFFFFFF, largest, offset));
    }
    scale = nvfp4_block_scale(bits_float(largest), tensor_scale);
    return nvfp4_code(value, nvfp4_step(scale, tensor_scale));
  }

  // Element i in the form that the rows have; `is_there`: it is stored. All lanes of a warp must call it.
  __device__ void store(int64_t i, float value, bool is_there = true) const {
    to.scales ? store_code(i, value, is_there) : store_bf16(i, value, is_there);
  }

  // Eight codes to a word.
  __device__ void store_code(int64_t i, float value, bool is_there = true) const {
    uint32_t scale, codes = quantize(value, scale);
    for (int offset = 1; offset < 8; offset *= 2) {
      codes |= __shfl_xor_sync(0xFFFFFFFF, codes, offset) << 4 * offset;
    }
    if (is_there && i % 8 == 0) store_word(i, codes);
    if (is_there && i % kNvfp4Block == 0) store_scale(i, scale);
  }

  // The codes of the eight elements from i on, and the scale of the block.
  __device__ void store_word(int64_t i, uint32_t codes) const { words()[i / 8] = codes; }
  __device__ void store_scale(int64_t i, uint32_t scale) const {
    to.scales[(row * to.cols + i) / kNvfp4Block] = scale;
  }

  __device__ void store_bf16(int64_t i, float value, bool is_there = true) const {
    uint32_t scale;
    const uint32_t code = quantize(value, scale);
    const float rounded = nvfp4_value(code, nvfp4_step(scale, tensor_scale));
    if (!is_there) return;
    store_as(FloatType::kBF16, to.codes, row * to.cols + i, rounded);
  }

  // What a row in codes has beside those of its elements, by the first `threads` that store it.
  __device__ void finish(int64_t thread, int64_t threads) const {
    for (int64_t i = to.cols / 8 + thread; i < words_of_row(); i += threads) words()[i] = 0;
    if (thread == 0) to.factors[row] = tensor_scale;
  }

 private:
  __device__ int64_t words_of_row() const { return padded_depth(to.cols / 4) / 2; }
  __device__ uint32_t* words() const { return reinterpret_cast<uint32_t*>(to.codes) + row * words_of_row(); }
};

}  // namespace spark
