// vec_memory.h: vectors from memory and back, and from one number. Included after kWidth, Vec and Bits.

inline Vec load(const float* from) {
  Vec vec;
  __builtin_memcpy(&vec, from, sizeof(vec));
  return vec;
}

inline void store(float* to, Vec vec) { __builtin_memcpy(to, &vec, sizeof(vec)); }

inline Vec splat(float value) { return value - Vec{}; }  // value + 0 would make 0 of -0

inline Bits load_words(const void* from) {
  Bits words;
  __builtin_memcpy(&words, from, sizeof(words));
  return words;
}

inline void store(void* to, Bits words) { __builtin_memcpy(to, &words, sizeof(words)); }

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

constexpr int kPanelVecs = kPanelRows / kWidth;
