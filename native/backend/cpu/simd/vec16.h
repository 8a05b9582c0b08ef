// vec16.h: the vectors of AVX-512, of 16 floats; included as gemm_body.h is, and before it.

constexpr int kWidth = 16;
using Vec = float __attribute__((vector_size(64)));
using Bits = uint32_t __attribute__((vector_size(64)));

inline Vec multiply_add(Vec a, Vec b, Vec sum) { return _mm512_fmadd_ps(a, b, sum); }

inline Vec larger(Vec a, Vec b) { return _mm512_mask_max_ps(b, _mm512_cmp_ps_mask(b, b, _CMP_ORD_Q), b, a); }

inline Vec at_least(Vec values, Vec least) { return _mm512_max_ps(least, values); }
inline Vec at_most(Vec values, Vec most) { return _mm512_min_ps(most, values); }

inline void stream(float* to, Vec vec) { _mm512_stream_ps(to, vec); }

inline Vec load_part(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps((1u << count) - 1, from);
}

inline void store_part(float* to, Vec values, int64_t count) {
  _mm512_mask_storeu_ps(to, (1u << count) - 1, values);
}

inline Bits load_codes(const uint8_t* codes) {
  return (Bits)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
}

inline Bits load_codes(const uint16_t* codes) {
  return (Bits)_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
}

inline Vec load_halves(const uint16_t* codes) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
}

inline Vec lookup_e2m1(Bits codes) {
  return _mm512_permutexvar_ps((__m512i)codes, _mm512_loadu_ps(kE2M1));  // by the low four bits
}

inline Bits lookup_bytes(Bits codes, const uint8_t* table) {
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
  return (Bits)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), (__m512i)codes);
}

inline Bits lookup_words(Bits indices, const uint32_t* table) {
  return (Bits)_mm512_i32gather_epi32((__m512i)indices, table, 4);
}

inline Vec lookup(Bits codes, const float* table) {
  return _mm512_permutexvar_ps((__m512i)codes, _mm512_loadu_ps(table));
}

// The two codes of a byte go to the halves of a 64-bit lane.
inline Vec load_e2m1(const uint8_t* codes) {
  const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  return lookup_e2m1((Bits)_mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 28)));
}

inline Vec evens(Vec a, Vec b) {
  const __m512i indices = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_permutex2var_ps(a, indices, b);
}

inline void order_before_reads(Vec& vec) { asm volatile("" : "+v"(vec) : : "memory"); }

using Mask = __mmask16;

inline Mask mask_between(int64_t begin, int64_t end) { return (1u << end) - (1u << begin); }

inline Mask mask_if(bool wanted, Mask mask) { return wanted ? mask : 0; }

inline Vec load_masked(const float* from, Mask mask) { return _mm512_maskz_loadu_ps(mask, from); }

// 4 by 4 inside the 128-bit quarters, then the quarters change places, 4 by 4 again.
inline void transpose(Vec (&v)[16]) {
  Vec t[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512 a = _mm512_unpacklo_ps(v[i], v[i + 1]), b = _mm512_unpacklo_ps(v[i + 2], v[i + 3]);
    const __m512 c = _mm512_unpackhi_ps(v[i], v[i + 1]), d = _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
    t[i] = _mm512_shuffle_ps(a, b, 0x44);
    t[i + 1] = _mm512_shuffle_ps(a, b, 0xEE);
    t[i + 2] = _mm512_shuffle_ps(c, d, 0x44);
    t[i + 3] = _mm512_shuffle_ps(c, d, 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x44);
    const __m512 b = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x44);
    const __m512 c = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xEE);
    const __m512 d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xEE);
    v[i] = _mm512_shuffle_f32x4(a, b, 0x88);
    v[i + 4] = _mm512_shuffle_f32x4(a, b, 0xDD);
    v[i + 8] = _mm512_shuffle_f32x4(c, d, 0x88);
    v[i + 12] = _mm512_shuffle_f32x4(c, d, 0xDD);
  }
}
