// dtype.h: element types, by the lower-case names of the safetensors format. lib/core/dtype.ts mirrors this
// table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spark {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kNVFP4,
  kI8,
  kF64,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF8E8M0,
  kF4,
  kI64,
  kI32,
  kI16,
  kI4,
  kI2,
  kU64,
  kU32,
  kU16,
  kU8,
  kU4,
  kU2,
  kBool,
  // Formats of weights in blocks (backend/block_formats.h).
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kTQ1_0,
  kTQ2_0,
  kU4_16,
  kU8_16,
  kU4_16F,
  kU4_32F,
  kU8_16F,
  kU8_32F,
  kU4_32,
  kU4_128,
  kU8_32,
  kU8_128,
  kF8_32,
  kF8_128,
};

// Elements of activations. A parameter of 32 bits is compared where it lies: one of a byte would cost kernels
// a register.
enum class FloatType : int32_t { kF32, kBF16, kF16 };

struct DTypeInfo {
  const char* name;
  size_t bits;  // an element takes in memory; block scales of NVFP4 not counted
};

// In the order of the enum. Elements of less than 8 bits take a byte each, their code in its low bits, but
// for the pairs of NVFP4; those of block formats are the bytes of blocks.
constexpr DTypeInfo kDTypes[] = {
    {"f32", 32},    {"f16", 16},   {"bf16", 16},       {"f8_e4m3", 8},     {"f8_e5m2", 8}, {"nvfp4", 4},
    {"i8", 8},      {"f64", 64},   {"f8_e4m3fnuz", 8}, {"f8_e5m2fnuz", 8}, {"f8_e8m0", 8}, {"f4", 8},
    {"i64", 64},    {"i32", 32},   {"i16", 16},        {"i4", 8},          {"i2", 8},      {"u64", 64},
    {"u32", 32},    {"u16", 16},   {"u8", 8},          {"u4", 8},          {"u2", 8},      {"bool", 8},
    {"q4_0", 8},    {"q4_1", 8},   {"q5_0", 8},        {"q5_1", 8},        {"q8_0", 8},    {"q2_k", 8},
    {"q3_k", 8},    {"q4_k", 8},   {"q5_k", 8},        {"q6_k", 8},        {"iq4_nl", 8},  {"iq4_xs", 8},
    {"mxfp4", 8},   {"iq1_s", 8},  {"iq1_m", 8},       {"iq2_xxs", 8},     {"iq2_xs", 8},  {"iq2_s", 8},
    {"iq3_xxs", 8}, {"iq3_s", 8},  {"tq1_0", 8},       {"tq2_0", 8},       {"u4_16", 8},   {"u8_16", 8},
    {"u4_16f", 8},  {"u4_32f", 8}, {"u8_16f", 8},      {"u8_32f", 8},      {"u4_32", 8},   {"u4_128", 8},
    {"u8_32", 8},   {"u8_128", 8}, {"f8_32", 8},       {"f8_128", 8},
};
constexpr size_t kDTypeCount = sizeof kDTypes / sizeof *kDTypes;

inline DType dtype_of(FloatType type) {
  return type == FloatType::kF32 ? DType::kF32 : type == FloatType::kBF16 ? DType::kBF16 : DType::kF16;
}
inline const char* dtype_name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

// Bits an element takes in memory.
inline size_t dtype_bits(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bits; }

}  // namespace spark
