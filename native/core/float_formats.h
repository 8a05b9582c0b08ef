// float_formats.h: the value of a stored float, exactly, in f32.
#pragma once

#include <bit>
#include <cstdint>

namespace spark {

inline float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// The exponent is moved by a multiplication, which also turns subnormals into normals.
inline float f16_to_f32(uint16_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t special = (bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
  const uint32_t value = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  return std::bit_cast<float>(value | special | sign);
}

inline float e4m3_to_f32(uint8_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7f) << 20;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80) << 24;
  const uint32_t nan = (bits & 0x7f) == 0x7f ? 0x7fc00000u : 0u;
  const uint32_t value = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p120f);
  return std::bit_cast<float>(value | nan | sign);
}

inline float e2m1_to_f32(uint8_t nibble) {
  constexpr float kValues[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return kValues[nibble];
}

}  // namespace spark
