// float_formats.h: the bits of every number format, and rounding to them. One source for the CPU and the CUDA
// kernels, so that they cannot differ; lib/precision/float-formats.ts mirrors it. Recipes: docs/numerics.md.
#pragma once

#include <cstdint>
#include <cstring>

// On the host always inlined: no copy remains that the linker could share between instruction sets
// (core/cpu_isa.h).
#ifdef __CUDACC__
#define SPARK_HOST_DEVICE __host__ __device__
#else
#define SPARK_HOST_DEVICE __attribute__((always_inline))
#endif

namespace spark {

constexpr uint32_t kInfinityBits = 0x7F800000;
constexpr uint32_t kNaNBits = 0x7FC00000;  // the only NaN that a cast writes

SPARK_HOST_DEVICE inline uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

SPARK_HOST_DEVICE inline float bits_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// A format of one sign, kExponentBits and kMantissaBits, with codes (sign cleared) up to kMaxFinite;
// kOverflow is what lies beyond when a cast does not saturate, kNaN what a NaN becomes.
template <typename Code_, int kExponentBits, int kMantissaBits, uint32_t kMaxFinite, uint32_t kOverflow,
          uint32_t kNaN>
struct SmallFloat {
  using Code = Code_;
  static constexpr int kSignShift = kExponentBits + kMantissaBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kMantissaBits;      // mantissa bits that f32 has more
  static constexpr uint32_t kExponentGap = 127 - kBias;  // exponent field in f32 minus the one here

  // The largest code (sign cleared) that a cast may give.
  SPARK_HOST_DEVICE static constexpr uint32_t limit(bool saturate) {
    return saturate ? kMaxFinite : kOverflow;
  }

  // Code of the value nearest to the f32 with these bits (sign cleared, no NaN), ties to even, as if
  // exponents went on above kMaxFinite.
  SPARK_HOST_DEVICE static uint32_t round(uint32_t bits) {
    const uint32_t half = (1u << (kShift - 1)) - 1 + ((bits >> kShift) & 1);
    const uint32_t normal = ((bits + half) >> kShift) - (kExponentGap << kMantissaBits);
    if constexpr (kExponentGap == 0) {
      return normal;  // bf16: the same exponents as f32, subnormals included
    } else {
      // Adding the power of two whose last bit is the subnormal step makes the adder round.
      constexpr uint32_t kMinNormal = (kExponentGap + 1) << 23;
      constexpr uint32_t kAnchor = (kExponentGap + 24 - kMantissaBits) << 23;
      const uint32_t subnormal = float_bits(bits_float(bits) + bits_float(kAnchor)) - kAnchor;
      return bits < kMinNormal ? subnormal : normal;
    }
  }

  // Nearest code, at most `limit`. NaN gives kNaN whatever its sign.
  SPARK_HOST_DEVICE static Code encode(float value, uint32_t limit) {
    const uint32_t bits = float_bits(value), magnitude = bits & 0x7FFFFFFF;
    const uint32_t rounded = round(magnitude);
    const uint32_t code = (rounded < limit ? rounded : limit) | (bits >> 31 << kSignShift);
    return static_cast<Code>(magnitude > kInfinityBits ? kNaN : code);
  }

  SPARK_HOST_DEVICE static float decode(uint32_t code) {
    const uint32_t magnitude = code & ((1u << kSignShift) - 1), sign = code >> kSignShift << 31;
    uint32_t bits = (magnitude << kShift) + (kExponentGap << 23);
    if constexpr (kExponentGap != 0) {
      constexpr uint32_t kStep = (kExponentGap + 1 - kMantissaBits) << 23;
      const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * bits_float(kStep);
      bits = magnitude < (1u << kMantissaBits) ? float_bits(subnormal) : bits;
    }
    bits |= sign;
    if constexpr (kMaxFinite < (1u << kSignShift) - 1) {
      const uint32_t infinite = kOverflow != kNaN ? kInfinityBits | sign : kNaNBits;
      const uint32_t special = magnitude == kOverflow ? infinite : kNaNBits;
      bits = magnitude > kMaxFinite ? special : bits;
    }
    return bits_float(bits);
  }

  // decode() for a value that is rounded again: which NaN it is does not matter then.
  SPARK_HOST_DEVICE static float widen(uint32_t code) {
    return kExponentGap == 0 ? bits_float(code << kShift) : decode(code);
  }
};

using F16 = SmallFloat<uint16_t, 5, 10, 0x7BFF, 0x7C00, 0x7FFF>;
using BF16 = SmallFloat<uint16_t, 8, 7, 0x7F7F, 0x7F80, 0x7FFF>;
using E4M3 = SmallFloat<uint8_t, 4, 3, 0x7E, 0x7F, 0x7F>;
using E5M2 = SmallFloat<uint8_t, 5, 2, 0x7B, 0x7C, 0x7F>;
using E2M1 = SmallFloat<uint8_t, 2, 1, 7, 7, 7>;  // the element of NVFP4: neither infinity nor NaN

// A format without infinities and without -0, whose code is NaN; its exponents are biased by one more.
template <typename Format>
struct Fnuz {
  using Code = uint8_t;
  SPARK_HOST_DEVICE static constexpr uint32_t limit(bool saturate) { return saturate ? 0x7F : 0x80; }
  SPARK_HOST_DEVICE static Code encode(float value, uint32_t limit) {
    const uint32_t bits = float_bits(value * 2), magnitude = bits & 0x7FFFFFFF;
    const uint32_t rounded = Format::round(magnitude), code = rounded < limit ? rounded : limit;
    if (magnitude > kInfinityBits || code == 0x80) return 0x80;
    return static_cast<Code>(code == 0 ? 0 : code | bits >> 31 << 7);
  }
  SPARK_HOST_DEVICE static float decode(uint32_t code) {
    return code == 0x80 ? bits_float(kNaNBits) : Format::decode(code) / 2;
  }
};
using E4M3Fnuz = Fnuz<SmallFloat<uint8_t, 4, 3, 0x7F, 0x80, 0x80>>;
using E5M2Fnuz = Fnuz<SmallFloat<uint8_t, 5, 2, 0x7F, 0x80, 0x80>>;

struct F32 {
  using Code = float;
  SPARK_HOST_DEVICE static uint32_t limit(bool) { return kInfinityBits; }
  SPARK_HOST_DEVICE static float encode(float value, uint32_t) {
    const uint32_t bits = float_bits(value);
    return bits_float((bits & 0x7FFFFFFF) > kInfinityBits ? kNaNBits : bits);
  }
  SPARK_HOST_DEVICE static float decode(float value) { return value; }
  SPARK_HOST_DEVICE static float widen(float value) { return value; }
};

// Only f8 formats saturate: f16 and bf16 always overflow to infinity.
template <typename Format>
SPARK_HOST_DEVICE inline uint32_t cast_limit(bool saturate) {
  return Format::limit(saturate && sizeof(typename Format::Code) == 1);
}

}  // namespace spark
