// round_integers.h: rows as signed bytes (backend/integer_rows.h) in vectors. Included by gemm_body.h after
// block_groups.h.
using SignedBytes = int8_t __attribute__((vector_size(kWidth)));

constexpr int kScaleVecs = kIntegerCols / kWidth;

// The nearest integers, ties to even, of numbers between -2^22 and 2^22.
inline Vec nearest(Vec values) {
  const Vec magic = splat(12582912.0f);  // 1.5 · 2^23
  return values + magic - magic;
}

// kIntegerCols numbers as bytes. Their scale is returned; sums[i] is that of the i-th half of the bytes.
inline float round_block(const float* x, int8_t* bytes, int32_t (&sums)[2]) {
  Vec largest{};
  Integers finite = Integers{} - 1;
#pragma GCC unroll 8
  for (int v = 0; v < kScaleVecs; ++v) {
    const Vec magnitude = (Vec)((Bits)load(x + v * kWidth) & 0x7FFFFFFF);
    finite &= magnitude <= splat(3.4028234e38f);
    largest = magnitude > largest ? magnitude : largest;
  }
  float most = 0;
  bool all_finite = true;
  for (int i = 0; i < kWidth; ++i) {
    most = largest[i] > most ? largest[i] : most;
    all_finite = all_finite && finite[i];
  }
  const float scale = all_finite ? most / 127.0f : bits_float(kNaNBits);
  const bool any = scale > 0;
  for (int half = 0; half < 2; ++half) {
    Integers sum{};
#pragma GCC unroll 4
    for (int v = half * kScaleVecs / 2; v < (half + 1) * kScaleVecs / 2; ++v) {
      Vec codes = any ? nearest(load(x + v * kWidth) / splat(scale)) : Vec{};
      codes = codes > splat(127) ? splat(127) : codes;
      codes = codes < splat(-127) ? splat(-127) : codes;
      const Integers integers = __builtin_convertvector(codes, Integers);
      const SignedBytes narrow = __builtin_convertvector(integers, SignedBytes);
      __builtin_memcpy(bytes + v * kWidth, &narrow, sizeof(narrow));
      sum += integers;
    }
    sums[half] = 0;
    for (int i = 0; i < kWidth; ++i) sums[half] += sum[i];
  }
  return scale;
}

void round_integers(const float* x, int64_t cols, int64_t run, uint32_t* groups, float* scales,
                    int32_t* sums) {
  for (int64_t col = 0; col < cols; col += kIntegerCols) {
    int32_t halves[2];
    scales[col / kIntegerCols] = round_block(x + col, reinterpret_cast<int8_t*>(groups + col / 4), halves);
    if (run == kIntegerCols) {
      sums[col / kIntegerCols] = halves[0] + halves[1];
    } else {
      sums[col / run] = halves[0];
      sums[col / run + 1] = halves[1];
    }
  }
}
