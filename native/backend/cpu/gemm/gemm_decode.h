// gemm_decode.h: pieces of rows of a frozen weight as f32. Included by gemm_body.h.

// Format::decode without branches: the exponent is moved by a multiplication, which also makes subnormals
// normal. A NaN may have another payload.
template <typename Format>
inline Vec widen(Bits code) {
  if constexpr (Format::kExponentGap == 0) return (Vec)(code << Format::kShift);
  constexpr uint32_t kMagnitude = (1u << Format::kSignShift) - 1;
  constexpr uint32_t kLimit = Format::limit(true);
  constexpr uint32_t kPower = (127 + Format::kExponentGap) << 23;
  const Bits magnitude = code & kMagnitude;
  const Bits special = (Bits)(magnitude > kLimit) & kInfinityBits;
  const Bits sign = (code & ~kMagnitude) << (31 - Format::kSignShift);
  const Vec value = (Vec)(magnitude << Format::kShift) * (Vec)(Bits{} + kPower);
  return (Vec)((Bits)value | special | sign);
}

// The values of kWidth codes.
template <typename Format>
inline Vec load_values(const typename Format::Code* codes) {
  return widen<Format>(load_codes(codes));
}

template <>
inline Vec load_values<F16>(const uint16_t* codes) {
  return load_halves(codes);
}

// dst[j] = value of codes[j] * scale
template <typename Format>
void decode_codes(const void* data, int64_t first, int64_t count, float scale, float* dst) {
  const auto* codes = static_cast<const typename Format::Code*>(data) + first;
  prefetch_next(codes, count * sizeof(*codes));
  int64_t j = 0;
  for (; j + kWidth <= count; j += kWidth) store(dst + j, load_values<Format>(codes + j) * scale);
  if (j == count) return;
  typename Format::Code tail[kWidth] = {};
  float values[kWidth];
  __builtin_memcpy(tail, codes + j, (count - j) * sizeof(*codes));
  store(values, load_values<Format>(tail) * scale);
  __builtin_memcpy(dst + j, values, (count - j) * sizeof(*dst));
}

void decode_integers(const int8_t* codes, int64_t count, float scale, float* dst) {
  prefetch_next(codes, count);
  for (int64_t j = 0; j < count; ++j) dst[j] = codes[j] * scale;
}

void decode_nvfp4(const Weight& weight, int64_t first, int64_t count, float* dst) {
  const auto* packed = static_cast<const uint8_t*>(weight.data) + first / 2;
  const uint8_t* block_scale = weight.block_scale + first / 16;
  prefetch_next(packed, count / 2);
  for (int64_t j = 0; j < count; j += kChunk) {
    float scales[kChunk / 16];
    const int64_t piece = smaller(kChunk, count - j);
    decode_codes<E4M3>(block_scale, j / 16, piece / 16, weight.tensor_scale, scales);
    for (int64_t i = 0; i < piece; i += kWidth) {
      store(dst + j + i, load_e2m1(packed + (j + i) / 2) * scales[i / 16]);
    }
  }
}

// gemm_blocks.h
void decode_block_row(const Weight& weight, int64_t row, int64_t col, int64_t count, float* dst);

void decode(const Weight& weight, int64_t row, int64_t col, int64_t count, float* dst) {
  const int64_t first = row * weight.cols + col;
  switch (weight.dtype) {
    case DType::kF32:
      return copy(static_cast<const float*>(weight.data) + first, count, dst);
    case DType::kF16:
      return decode_codes<F16>(weight.data, first, count, 1, dst);
    case DType::kBF16:
      return decode_codes<BF16>(weight.data, first, count, 1, dst);
    case DType::kF8E4M3:
      return decode_codes<E4M3>(weight.data, first, count, weight.row_scale[row], dst);
    case DType::kNVFP4:
      return decode_nvfp4(weight, first, count, dst);
    case DType::kI8:
      return decode_integers(static_cast<const int8_t*>(weight.data) + first, count, weight.row_scale[row],
                             dst);
    default:
      return decode_block_row(weight, row, col, count, dst);
  }
}
