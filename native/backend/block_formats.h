// block_formats.h: the block formats of weights: those of GGUF, and groups of integers or of E4M3 codes. A
// block holds kElements neighbours of a row in kBytes bytes; runs of kRun of them share a scale and an
// offset:
//   element i = level(code i) · scale(run) + offset(run)     each operation rounded to f32
// A code has kLow bits and kHigh bits above those; its level is that of Levels, or code − kZero, less the
// byte, or the f32 number for kFloatZero, at kZeroAt where that is not negative. four(block, i) gives the
// codes of elements i to i + 3, i being a multiple of 4, as the bytes of a word. A scale is
//   kHalf       the f16 number d at kScaleAt
//   kTimes      d · sub(block, run)
//   kExponent   2^(e − 128) of the byte e at kScaleAt
//   kFloat      the f32 number at kScaleAt
// an offset, where kOffset is not 0, kOffset · m for kHalf, kOffset · (m · sub_min(block, run)) for kTimes, m
// being the f16 number at kMinAt. lib/weights/blocks has the formulas in TypeScript.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/float_formats.h"

namespace spark::blocks {

enum class Scale { kHalf, kTimes, kExponent, kFloat };

SPARK_HOST_DEVICE inline uint16_t half_code(const uint8_t* at) {
  return static_cast<uint16_t>(at[0] | at[1] << 8);
}

// Four bytes; on a device from the aligned words that they lie in, whose memory ends with a word.
SPARK_HOST_DEVICE inline uint32_t word_at(const uint8_t* at) {
#ifdef __CUDA_ARCH__
  const unsigned byte = reinterpret_cast<uintptr_t>(at) % 4;
  const auto* words = reinterpret_cast<const uint32_t*>(at - byte);
  return __funnelshift_r(words[0], words[byte == 0 ? 0 : 1], byte * 8);
#endif
  return at[0] | at[1] << 8 | at[2] << 16 | static_cast<uint32_t>(at[3]) << 24;
}

// The f32 number 2^(code − 128).
SPARK_HOST_DEVICE inline float power_of(uint32_t code) {
  return bits_float(code < 2 ? 0x200000u << code : (code - 1) << 23);
}

// The low four bits of a number, one in each byte of a word.
template <typename Word>
SPARK_HOST_DEVICE inline Word spread_bits(Word bits) {
  return (bits & 15) * 0x00204081u & 0x01010101u;
}

// Nibbles of runs of 16 low ones, then the high ones of the same 16 bytes.
SPARK_HOST_DEVICE inline uint32_t four_nibbles(const uint8_t* from, int i, int half) {
  return word_at(from + i % half) >> (i < half ? 0 : 4) & 0x0F0F0F0Fu;
}

template <int kElements_, int kBytes_, int kRun_, int kLow_, int kHigh_>
struct Block {
  static constexpr int kElements = kElements_, kBytes = kBytes_, kRun = kRun_, kLow = kLow_, kHigh = kHigh_;
  static constexpr bool kSigned = false;    // codes of 8 bits are
  static constexpr bool kE4m3 = false;      // codes of 8 bits are floats
  static constexpr bool kAsStored = false;  // in panels, too: grid_formats.h
  static constexpr bool kFloatZero = false;
  using Levels = void;  // a table of 16
  static constexpr int kZero = 0, kOffset = 0, kScaleAt = 0, kMinAt = 2, kZeroAt = -1;
  static constexpr Scale kScale = Scale::kHalf;
  static constexpr int kPanelBlocks = 1;  // that lie together in a panel
  SPARK_HOST_DEVICE static int sub(const uint8_t*, int) { return 1; }
  SPARK_HOST_DEVICE static int sub_min(const uint8_t*, int) { return 1; }
};

struct Q4_0 : Block<32, 18, 32, 4, 0> {
  static constexpr int kZero = 8;
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    return four_nibbles(block + 2, i, 16);
  }
};

struct Q4_1 : Block<32, 20, 32, 4, 0> {
  static constexpr int kOffset = 1;
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    return four_nibbles(block + 4, i, 16);
  }
};

struct Q5_0 : Block<32, 22, 32, 4, 1> {
  static constexpr int kZero = 16;
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    return four_nibbles(block + 6, i, 16) | spread_bits(block[2 + i / 8] >> i % 8) << 4;
  }
};

struct Q5_1 : Block<32, 24, 32, 4, 1> {
  static constexpr int kOffset = 1;
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    return four_nibbles(block + 8, i, 16) | spread_bits(block[4 + i / 8] >> i % 8) << 4;
  }
};

struct Q8_0 : Block<32, 34, 32, 8, 0> {
  static constexpr bool kSigned = true;
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) { return word_at(block + 2 + i); }
};

// Two bits of 128 elements are in 32 bytes: four shifts, of 32 elements each.
SPARK_HOST_DEVICE inline uint32_t four_pairs(const uint8_t* from, int i) {
  return word_at(from + i / 128 * 32 + i % 32) >> i / 32 % 4 * 2 & 0x03030303u;
}

struct Q2_K : Block<256, 84, 16, 2, 0> {
  static constexpr int kOffset = -1, kScaleAt = 80, kMinAt = 82;
  static constexpr Scale kScale = Scale::kTimes;
  SPARK_HOST_DEVICE static int sub(const uint8_t* block, int run) { return block[run] & 15; }
  SPARK_HOST_DEVICE static int sub_min(const uint8_t* block, int run) { return block[run] >> 4; }
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) { return four_pairs(block + 16, i); }
};

struct Q3_K : Block<256, 110, 16, 2, 1> {
  static constexpr int kZero = 4, kScaleAt = 108;
  static constexpr Scale kScale = Scale::kTimes;
  SPARK_HOST_DEVICE static int sub(const uint8_t* block, int run) {
    const int low = block[96 + run % 8] >> (run < 8 ? 0 : 4) & 15;
    return (low | (block[104 + run % 4] >> run / 4 * 2 & 3) << 4) - 32;
  }
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    return four_pairs(block + 32, i) | (word_at(block + i % 32) >> i / 32 & 0x01010101u) << 2;
  }
};

// Scales and minima of 6 bits of Q4_K and Q5_K.
template <int kBytes, int kHigh>
struct SixBitScales : Block<256, kBytes, 32, 4, kHigh> {
  static constexpr int kOffset = -1;
  static constexpr Scale kScale = Scale::kTimes;
  SPARK_HOST_DEVICE static int sub(const uint8_t* block, int run) {
    return run < 4 ? block[4 + run] & 63 : (block[8 + run] & 15) | block[run] >> 6 << 4;
  }
  SPARK_HOST_DEVICE static int sub_min(const uint8_t* block, int run) {
    return run < 4 ? block[8 + run] & 63 : block[8 + run] >> 4 | block[4 + run] >> 6 << 4;
  }
};

// Of each 64 elements, 32 low nibbles and 32 high ones.
struct Q4_K : SixBitScales<144, 0> {
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    return four_nibbles(block + 16 + i / 64 * 32, i % 64, 32);
  }
};

struct Q5_K : SixBitScales<176, 1> {
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    return four_nibbles(block + 48 + i / 64 * 32, i % 64, 32) |
           (word_at(block + 16 + i % 32) >> i / 32 & 0x01010101u) << 4;
  }
};

struct Q6_K : Block<256, 210, 16, 4, 2> {
  static constexpr int kZero = 32, kScaleAt = 208;
  static constexpr Scale kScale = Scale::kTimes;
  SPARK_HOST_DEVICE static int sub(const uint8_t* block, int run) {
    return static_cast<int8_t>(block[192 + run]);
  }
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    return four_nibbles(block + i / 128 * 64, i % 128, 64) | four_pairs(block + 128, i) << 4;
  }
};

// Levels as bytes. IQ4: -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113.
struct Iq4Levels {
  static constexpr uint64_t kLevelsLow = 0xF6EADDCFBFAD9881, kLevelsHigh = 0x7159453526190D01;
};
// Twice the numbers of E2M1: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives.
struct E2m1Levels {
  static constexpr uint64_t kLevelsLow = 0x0C08060403020100, kLevelsHigh = 0xF4F8FAFCFDFEFF00;
};

struct IQ4_NL : Block<32, 18, 32, 4, 0> {
  using Levels = Iq4Levels;
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    return four_nibbles(block + 2, i, 16);
  }
};

struct IQ4_XS : Block<256, 136, 32, 4, 0> {
  using Levels = Iq4Levels;
  static constexpr Scale kScale = Scale::kTimes;
  SPARK_HOST_DEVICE static int sub(const uint8_t* block, int run) {
    const int low = block[4 + run / 2] >> run % 2 * 4 & 15;
    return (low | (block[2 + run / 4] >> run % 4 * 2 & 3) << 4) - 32;
  }
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    return four_nibbles(block + 8 + i / 32 * 16, i % 32, 16);
  }
};

struct MXFP4 : Block<32, 17, 32, 4, 0> {
  using Levels = E2m1Levels;
  static constexpr Scale kScale = Scale::kExponent;
  static constexpr int kPanelBlocks = 2;  // 64 bytes of exponents
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    return four_nibbles(block + 1, i, 16);
  }
};

// Ternary: two bits less one.
struct TQ2_0 : Block<256, 66, 32, 2, 0> {
  static constexpr int kZero = 1, kScaleAt = 64;
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) { return four_pairs(block, i); }
};

// Unsigned integers with a scale and a zero point of kZeroBytes; of each two nibbles the low one comes first.
template <int kCount, int kBits, int kZeroBytes = 1>
struct Group : Block<kCount, 4 + kZeroBytes + kCount * kBits / 8, kCount, kBits, 0> {
  static constexpr Scale kScale = Scale::kFloat;
  static constexpr bool kFloatZero = kZeroBytes == 4;
  static constexpr int kZeroAt = 4, kPanelBlocks = 2;
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    const uint8_t* codes = block + 4 + kZeroBytes;
    if constexpr (kBits == 8) return word_at(codes + i);
    const uint32_t pairs = half_code(codes + i / 2);
    return (pairs & 0xF) | (pairs & 0xF0) << 4 | (pairs & 0xF00) << 8 | (pairs & 0xF000) << 12;
  }
};
using U4_16 = Group<16, 4>;
using U8_16 = Group<16, 8>;
using U4_16F = Group<16, 4, 4>;
using U4_32F = Group<32, 4, 4>;
using U8_16F = Group<16, 8, 4>;
using U8_32F = Group<32, 8, 4>;
using U4_32 = Group<32, 4>;
using U4_128 = Group<128, 4>;
using U8_32 = Group<32, 8>;
using U8_128 = Group<128, 8>;

// E4M3 codes with a scale.
template <int kCount>
struct F8Group : Block<kCount, 4 + kCount, kCount, 8, 0> {
  static constexpr Scale kScale = Scale::kFloat;
  static constexpr bool kE4m3 = true;
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) { return word_at(block + 4 + i); }
};
using F8_32 = F8Group<32>;
using F8_128 = F8Group<128>;

}  // namespace spark::blocks

#include "backend/grid_formats.h"

namespace spark::blocks {

// No product is contracted with a sum, on the host and on a device.
template <typename F>
SPARK_HOST_DEVICE inline float scale_of(const uint8_t* block, int run) {
  if constexpr (F::kScale == Scale::kExponent) return power_of(block[F::kScaleAt]);
  if constexpr (F::kScale == Scale::kFloat) return bits_float(word_at(block + F::kScaleAt));
  if constexpr (F::kAsStored) {
    const StoredBlock source{block};
    const float d = F16::decode(F::half(source));
    if constexpr (F::kScale == Scale::kHalf)
      return d;
    else
      return d * (static_cast<float>(F::factor(source, run)) * F::kStep);
  }
  const float d = F16::decode(half_code(block + F::kScaleAt));
  return F::kScale == Scale::kHalf ? d : d * static_cast<float>(F::sub(block, run));
}

template <typename F>
SPARK_HOST_DEVICE inline float offset_of(const uint8_t* block, int run) {
  const float m = F16::decode(half_code(block + F::kMinAt));
  const float min = F::kScale == Scale::kHalf ? m : m * static_cast<float>(F::sub_min(block, run));
  return F::kOffset < 0 ? -min : min;
}

// The number that a code stands for, in front of its scale and without a zero point of the block.
template <typename F>
SPARK_HOST_DEVICE inline constexpr float level_of(uint32_t code) {
  if constexpr (F::kE4m3) return E4M3::decode(code);
  if constexpr (F::kSigned) return static_cast<int8_t>(code);
  if constexpr (!std::is_void_v<typename F::Levels>) {
    return static_cast<int8_t>((code < 8 ? F::Levels::kLevelsLow : F::Levels::kLevelsHigh) >> code % 8 * 8);
  }
  return static_cast<int>(code) - F::kZero;
}

// The lowest level of a table.
template <typename F>
SPARK_HOST_DEVICE inline constexpr int lowest_level() {
  int lowest = 0;
  for (uint32_t code = 0; code < 16; ++code) {
    const int level = static_cast<int>(level_of<F>(code));
    lowest = level < lowest ? level : lowest;
  }
  return lowest;
}

// The zero point of a block.
template <typename F>
SPARK_HOST_DEVICE inline float zero_of(const uint8_t* block) {
  if constexpr (F::kFloatZero) return bits_float(word_at(block + F::kZeroAt));
  return F::kZeroAt < 0 ? 0.0f : static_cast<float>(block[F::kZeroAt < 0 ? 0 : F::kZeroAt]);
}

// Whether levels are integers, in blocks that rows of integers (backend/integer_rows.h) are multiplied with.
template <typename F>
constexpr bool kHasIntegers = !F::kE4m3 && !F::kFloatZero && F::kElements >= 32;

// Element i of a block.
template <typename F>
SPARK_HOST_DEVICE inline float element_of(const uint8_t* block, int i) {
  const uint32_t code = F::four(block, i & ~3) >> i % 4 * 8 & 0xFF;
  const float value = (level_of<F>(code) - zero_of<F>(block)) * scale_of<F>(block, i / F::kRun);
  if constexpr (F::kOffset == 0) return value;
  return value + offset_of<F>(block, i / F::kRun);
}

}  // namespace spark::blocks

// SPARK_FOR_EACH_BLOCK_FORMAT(DEFINE): DEFINE(dtype name, enumerator of DType, struct) for every format.
#define SPARK_FOR_EACH_BLOCK_FORMAT(DEFINE)         \
  DEFINE(q4_0, kQ4_0, spark::blocks::Q4_0)          \
  DEFINE(q4_1, kQ4_1, spark::blocks::Q4_1)          \
  DEFINE(q5_0, kQ5_0, spark::blocks::Q5_0)          \
  DEFINE(q5_1, kQ5_1, spark::blocks::Q5_1)          \
  DEFINE(q8_0, kQ8_0, spark::blocks::Q8_0)          \
  DEFINE(q2_k, kQ2_K, spark::blocks::Q2_K)          \
  DEFINE(q3_k, kQ3_K, spark::blocks::Q3_K)          \
  DEFINE(q4_k, kQ4_K, spark::blocks::Q4_K)          \
  DEFINE(q5_k, kQ5_K, spark::blocks::Q5_K)          \
  DEFINE(q6_k, kQ6_K, spark::blocks::Q6_K)          \
  DEFINE(iq4_nl, kIQ4_NL, spark::blocks::IQ4_NL)    \
  DEFINE(iq4_xs, kIQ4_XS, spark::blocks::IQ4_XS)    \
  DEFINE(mxfp4, kMXFP4, spark::blocks::MXFP4)       \
  DEFINE(iq1_s, kIQ1_S, spark::blocks::IQ1_S)       \
  DEFINE(iq1_m, kIQ1_M, spark::blocks::IQ1_M)       \
  DEFINE(iq2_xxs, kIQ2_XXS, spark::blocks::IQ2_XXS) \
  DEFINE(iq2_xs, kIQ2_XS, spark::blocks::IQ2_XS)    \
  DEFINE(iq2_s, kIQ2_S, spark::blocks::IQ2_S)       \
  DEFINE(iq3_xxs, kIQ3_XXS, spark::blocks::IQ3_XXS) \
  DEFINE(iq3_s, kIQ3_S, spark::blocks::IQ3_S)       \
  DEFINE(tq1_0, kTQ1_0, spark::blocks::TQ1_0)       \
  DEFINE(tq2_0, kTQ2_0, spark::blocks::TQ2_0)       \
  DEFINE(u4_16, kU4_16, spark::blocks::U4_16)       \
  DEFINE(u8_16, kU8_16, spark::blocks::U8_16)       \
  DEFINE(u4_16f, kU4_16F, spark::blocks::U4_16F)    \
  DEFINE(u4_32f, kU4_32F, spark::blocks::U4_32F)    \
  DEFINE(u8_16f, kU8_16F, spark::blocks::U8_16F)    \
  DEFINE(u8_32f, kU8_32F, spark::blocks::U8_32F)    \
  DEFINE(u4_32, kU4_32, spark::blocks::U4_32)       \
  DEFINE(u4_128, kU4_128, spark::blocks::U4_128)    \
  DEFINE(u8_32, kU8_32, spark::blocks::U8_32)       \
  DEFINE(u8_128, kU8_128, spark::blocks::U8_128)    \
  DEFINE(f8_32, kF8_32, spark::blocks::F8_32)       \
  DEFINE(f8_128, kF8_128, spark::blocks::F8_128)

namespace spark {

// What one has to know of a block of a weight; no bytes for formats without blocks of this kind.
struct BlockSize {
  int elements, bytes, panel_blocks;
  int run_cols;       // columns that share a scale, 32 at most
  bool has_integers;  // so that it can be multiplied by rows of integers
};

SPARK_HOST_DEVICE inline BlockSize block_size(DType dtype) {
  switch (dtype) {
#define SPARK_BLOCK_SIZE(name, enumerator, Format)                                                          \
  case DType::enumerator:                                                                                   \
    return {Format::kElements, Format::kBytes, Format::kPanelBlocks, Format::kRun < 32 ? Format::kRun : 32, \
            blocks::kHasIntegers<Format>};
    SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_BLOCK_SIZE)
#undef SPARK_BLOCK_SIZE
    default:
      return {1, 0, 1, 32, false};
  }
}

SPARK_HOST_DEVICE inline int run_cols(DType dtype) { return block_size(dtype).run_cols; }

SPARK_HOST_DEVICE inline bool has_integer_codes(DType dtype) { return block_size(dtype).has_integers; }

SPARK_HOST_DEVICE inline bool is_block_format(DType dtype) { return block_size(dtype).bytes > 0; }

}  // namespace spark
