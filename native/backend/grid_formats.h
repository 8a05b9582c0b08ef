// grid_formats.h: the block formats whose codes are indices of a grid of vectors (IQ1 to IQ3), and that of
// ternary digits (TQ1_0). Included by block_formats.h.
//
// They lie in panels as they are stored (block_panels.h), so that formulas are written once for the blocks of
// a row and for those of several: a Source gives bytes, 16 and 32 bits of one block (uint32_t) or of one
// block of each row of a vector (a vector of uint32_t), and looks words up in a table.
//   codes(source, i)     the levels of elements i to i + 3, i being a multiple of 4, as bytes
//   factor(source, run)  what the scale of a run is d · kStep times; such products are exact
//   half(source)         the code of d
#pragma once

#include "backend/block_grids.h"

// A table that kernels of the device read, too.
#ifdef __CUDACC__
#define SPARK_TABLE static __device__ constexpr
#else
#define SPARK_TABLE constexpr  // one for each unit: code of wide instruction sets shares no symbols
#endif

namespace spark::blocks {

// A block of a row.
struct StoredBlock {
  const uint8_t* at;
  SPARK_HOST_DEVICE uint32_t byte(int i) const { return at[i]; }
  SPARK_HOST_DEVICE uint32_t half(int i) const { return half_code(at + i); }
  SPARK_HOST_DEVICE uint32_t word(int i) const { return word_at(at + i); }
  SPARK_HOST_DEVICE uint32_t look_up(const uint32_t* table, uint32_t index) const { return table[index]; }
};

// Vectors of kSize elements, four to a word.
template <int kCount, int kSize>
struct Grid {
  uint32_t words[kCount * kSize / 4];
};

template <int kCount, int kSize, int kWords, int kLevels>
constexpr Grid<kCount, kSize> grid_of(const uint64_t (&bitmap)[kWords], const uint8_t (&levels)[kLevels]) {
  Grid<kCount, kSize> grid{};
  int numbers = 1, code = 0;
  for (int i = 0; i < kSize; ++i) numbers *= kLevels;
  for (int n = 0; n < numbers; ++n) {
    if ((bitmap[n / 64] >> n % 64 & 1) == 0) continue;
    for (int i = 0, rest = n; i < kSize; ++i, rest /= kLevels) {
      grid.words[(code * kSize + i) / 4] |= static_cast<uint32_t>(levels[rest % kLevels]) << i % 4 * 8;
    }
    ++code;
  }
  return grid;
}

constexpr uint8_t kIq2Levels[] = {8, 25, 43}, kIq3XxsLevels[] = {4, 12, 20, 28, 36, 44, 52, 62},
                  kIq3SLevels[] = {1, 3, 5, 7, 9, 11, 13, 15},
                  kIq1Levels[] = {119, 127, 135};  // 8 · (-1, 0, 1) - 1 + 128
SPARK_TABLE auto kIq2XxsGrid = grid_of<256, 8>(kIq2XxsBitmap, kIq2Levels);
SPARK_TABLE auto kIq2XsGrid = grid_of<512, 8>(kIq2XsBitmap, kIq2Levels);
SPARK_TABLE auto kIq2SGrid = grid_of<1024, 8>(kIq2SBitmap, kIq2Levels);
SPARK_TABLE auto kIq3XxsGrid = grid_of<256, 4>(kIq3XxsBitmap, kIq3XxsLevels);
SPARK_TABLE auto kIq3SGrid = grid_of<512, 4>(kIq3SBitmap, kIq3SLevels);
SPARK_TABLE auto kIq1Grid = grid_of<2048, 8>(kIq1SBitmap, kIq1Levels);

// Seven signs and one that makes their number even.
template <typename Word>
SPARK_HOST_DEVICE inline Word even_signs(Word bits) {
  const Word fours = bits ^ bits >> 4, pairs = fours ^ fours >> 2;
  return bits | ((pairs ^ pairs >> 1) & 1) << 7;
}

// Four positive bytes, negative where one of the low bits of `signs` is set.
template <typename Word>
SPARK_HOST_DEVICE inline Word with_signs(Word bytes, Word signs) {
  const Word ones = spread_bits(signs);
  return (bytes ^ ones * 0xFF) + ones;
}

template <typename Self, int kBytes, int kRun>
struct GridBlock : Block<256, kBytes, kRun, 8, 0> {
  static constexpr bool kSigned = true, kAsStored = true;
  static constexpr Scale kScale = Scale::kTimes;
  static constexpr float kStep = 1;
  SPARK_HOST_DEVICE static uint32_t four(const uint8_t* block, int i) {
    return Self::codes(StoredBlock{block}, i);
  }
  template <typename Source>
  SPARK_HOST_DEVICE static auto half(const Source& source) {
    return source.half(0);
  }
  // 2s + 1 of nibble `run` from `at` on.
  template <typename Source>
  SPARK_HOST_DEVICE static auto odd_nibble(const Source& source, int at, int run) {
    return (source.byte(at + run / 2) >> run % 2 * 4 & 15) * 2 + 1;
  }
};

// d; for each 32 elements four codes, then four times seven signs and a scale of four bits.
struct IQ2_XXS : GridBlock<IQ2_XXS, 66, 32> {
  static constexpr float kStep = 0.125f;
  template <typename Source>
  SPARK_HOST_DEVICE static auto factor(const Source& source, int run) {
    return (source.word(6 + run * 8) >> 28) * 2 + 1;
  }
  template <typename Source>
  SPARK_HOST_DEVICE static auto codes(const Source& source, int i) {
    const int at = 2 + i / 32 * 8, vector = i / 8 % 4;
    const auto signs = even_signs(source.word(at + 4) >> vector * 7 & 127);
    const auto index = source.byte(at + vector) * 2 + i / 4 % 2;
    return with_signs(source.look_up(kIq2XxsGrid.words, index), signs >> i % 8);
  }
};

// d, 32 times nine bits of code and seven signs, 16 scales of four bits.
struct IQ2_XS : GridBlock<IQ2_XS, 74, 16> {
  static constexpr float kStep = 0.125f;
  template <typename Source>
  SPARK_HOST_DEVICE static auto factor(const Source& source, int run) {
    return IQ2_XS::odd_nibble(source, 66, run);
  }
  template <typename Source>
  SPARK_HOST_DEVICE static auto codes(const Source& source, int i) {
    const auto both = source.half(2 + i / 8 * 2);
    const auto index = (both & 511) * 2 + i / 4 % 2;
    return with_signs(source.look_up(kIq2XsGrid.words, index), even_signs(both >> 9) >> i % 8);
  }
};

// d, 32 low bytes of codes, 32 bytes of signs, two high bits of each code, 16 scales of four bits.
struct IQ2_S : GridBlock<IQ2_S, 82, 16> {
  static constexpr float kStep = 0.125f;
  template <typename Source>
  SPARK_HOST_DEVICE static auto factor(const Source& source, int run) {
    return IQ2_S::odd_nibble(source, 74, run);
  }
  template <typename Source>
  SPARK_HOST_DEVICE static auto codes(const Source& source, int i) {
    const auto high = source.byte(66 + i / 32) >> i / 8 % 4 * 2 & 3;
    const auto index = (source.byte(2 + i / 8) | high << 8) * 2 + i / 4 % 2;
    return with_signs(source.look_up(kIq2SGrid.words, index), source.byte(34 + i / 8) >> i % 8);
  }
};

// d, 64 codes; for each 32 elements four times seven signs and a scale of four bits.
struct IQ3_XXS : GridBlock<IQ3_XXS, 98, 32> {
  static constexpr float kStep = 0.25f;
  template <typename Source>
  SPARK_HOST_DEVICE static auto factor(const Source& source, int run) {
    return (source.word(66 + run * 4) >> 28) * 2 + 1;
  }
  template <typename Source>
  SPARK_HOST_DEVICE static auto codes(const Source& source, int i) {
    const auto signs = even_signs(source.word(66 + i / 32 * 4) >> i / 8 % 4 * 7 & 127);
    return with_signs(source.look_up(kIq3XxsGrid.words, source.byte(2 + i / 4)), signs >> i % 8);
  }
};

// d, 64 low bytes of codes, their ninth bits, 32 bytes of signs, eight scales of four bits.
struct IQ3_S : GridBlock<IQ3_S, 110, 32> {
  template <typename Source>
  SPARK_HOST_DEVICE static auto factor(const Source& source, int run) {
    return IQ3_S::odd_nibble(source, 106, run);
  }
  template <typename Source>
  SPARK_HOST_DEVICE static auto codes(const Source& source, int i) {
    const auto high = source.byte(66 + i / 32) >> i / 4 % 8 & 1;
    const auto index = source.byte(2 + i / 4) | high << 8;
    return with_signs(source.look_up(kIq3SGrid.words, index), source.byte(74 + i / 8) >> i % 8);
  }
};

// Bytes of kIq1Grid as eighths: 8v + 1, or 8v - 1 where the low bit of `down` is set.
template <typename Word>
SPARK_HOST_DEVICE inline Word moved(Word bytes, Word down) {
  return (bytes + (1 - (down & 1)) * 0x02020202u) ^ 0x80808080u;
}

// d, 32 low bytes of codes; for each 32 elements four times three high bits, a scale of three and a sign of
// the eighth.
struct IQ1_S : GridBlock<IQ1_S, 50, 32> {
  static constexpr float kStep = 0.125f;
  template <typename Source>
  SPARK_HOST_DEVICE static auto factor(const Source& source, int run) {
    return (source.half(34 + run * 2) >> 12 & 7) * 2 + 1;
  }
  template <typename Source>
  SPARK_HOST_DEVICE static auto codes(const Source& source, int i) {
    const auto rest = source.half(34 + i / 32 * 2);
    const auto high = rest >> i / 8 % 4 * 3 & 7;
    const auto index = (source.byte(2 + i / 8) | high << 8) * 2 + i / 4 % 2;
    return moved(source.look_up(kIq1Grid.words, index), rest >> 15);
  }
};

// 32 low bytes of codes, 32 nibbles of three high bits and the sign of the eighth, four times four scales of
// three bits and four bits of d.
struct IQ1_M : GridBlock<IQ1_M, 56, 16> {
  static constexpr float kStep = 0.125f;
  template <typename Source>
  SPARK_HOST_DEVICE static auto half(const Source& source) {
    return source.half(48) >> 12 | source.half(50) >> 12 << 4 | source.half(52) >> 12 << 8 |
           source.half(54) >> 12 << 12;
  }
  template <typename Source>
  SPARK_HOST_DEVICE static auto factor(const Source& source, int run) {
    return (source.half(48 + run / 4 * 2) >> run % 4 * 3 & 7) * 2 + 1;
  }
  template <typename Source>
  SPARK_HOST_DEVICE static auto codes(const Source& source, int i) {
    const auto rest = source.byte(32 + i / 16) >> i / 8 % 2 * 4;
    const auto index = (source.byte(i / 8) | (rest & 7) << 8) * 2 + i / 4 % 2;
    return moved(source.look_up(kIq1Grid.words, index), rest >> 3);
  }
};

// 32 and 16 bytes of five ternary digits, four bytes of four, d. A byte is a number of base 3 as a fraction
// of 256; times a power of 3 modulo 256 a digit comes to the front.
struct TQ1_0 : GridBlock<TQ1_0, 54, 32> {
  static constexpr bool kSigned = false;
  static constexpr int kZero = 1, kScaleAt = 52;
  static constexpr Scale kScale = Scale::kHalf;
  template <typename Source>
  SPARK_HOST_DEVICE static auto half(const Source& source) {
    return source.half(52);
  }
  template <typename Source>
  SPARK_HOST_DEVICE static auto codes(const Source& source, int i) {
    const int begin = i < 160 ? 0 : i < 240 ? 160 : 240, bytes = i < 160 ? 32 : i < 240 ? 16 : 4;
    const int digit = (i - begin) / bytes;
    const auto word = source.word(begin / 5 + (i - begin) % bytes);
    const uint32_t power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
    constexpr uint32_t kEvenBytes = 0x00FF00FF;
    const auto even = ((word & kEvenBytes) * power & kEvenBytes) * 3 >> 8 & kEvenBytes;
    const auto odd = ((word >> 8 & kEvenBytes) * power & kEvenBytes) * 3 >> 8 & kEvenBytes;
    return even | odd << 8;
  }
};

}  // namespace spark::blocks
