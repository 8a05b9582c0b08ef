// activation_loops_body.h: activations of 16 floats at a time. Included once per instruction set in an
// unnamed namespace (core/cpu_isa.h says why), behind vector_math.h. Errors: docs/numerics.md.
using vector_math::exp;
using vector_math::Floats;
using vector_math::kLanes;
using vector_math::splat;
using vector_math::Words;

inline Floats magnitude(Floats x) { return (Floats)((Words)x & 0x7FFFFFFF); }
inline Floats with_sign(Floats x, Floats of) { return (Floats)((Words)x | ((Words)of & ~0x7FFFFFFF)); }

inline Floats sigmoid(Floats x) { return 1 / (1 + exp(-x)); }

// With u = e^2|x| − 1, u / (u + 2). Near 0 u is summed without its first term, so that no digits are lost.
inline Floats tanh(Floats x) {
  const Floats y = 2 * magnitude(x);
  Floats series = splat(1.0f / 39916800);
  constexpr float kTerms[] = {1.0f / 3628800, 1.0f / 362880, 1.0f / 40320, 1.0f / 5040, 1.0f / 720,
                              1.0f / 120,     1.0f / 24,     1.0f / 6,     0.5f,        1.0f};
#pragma GCC unroll 10
  for (int i = 0; i < 10; ++i) series = series * y + kTerms[i];
  const Floats u = y < 1 ? y * series : exp(y) - 1;
  const Floats result = y > 20 ? splat(1) : u / (u + 2);
  return with_sign(result, x);
}

// Below 1 the Maclaurin series up to x^21, beyond it formula 7.1.26 of Abramowitz and Stegun, whose error is
// at most 1.5e-7.
inline Floats erf(Floats x) {
  const Floats z = magnitude(x), square = z * z;
  Floats series = splat(1.0f / (21 * 3628800.0f));
  constexpr float kTerms[] = {-1.0f / (19 * 362880),
                              1.0f / (17 * 40320),
                              -1.0f / (15 * 5040),
                              1.0f / (13 * 720),
                              -1.0f / (11 * 120),
                              1.0f / (9 * 24),
                              -1.0f / (7 * 6),
                              0.1f,
                              -1.0f / 3,
                              1.0f};
#pragma GCC unroll 10
  for (int i = 0; i < 10; ++i) series = series * square + kTerms[i];
  const Floats t = 1 / (1 + 0.3275911f * z);
  Floats tail = splat(1.061405429f);
  constexpr float kTail[] = {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) tail = tail * t + kTail[i];
  const Floats beyond = 1 - tail * t * exp(-square);
  return with_sign(z < 1 ? 1.12837917f * z * series : beyond, x);
}

inline Floats apply(Activation activation, Floats x) {
  constexpr float kRootHalf = 0.70710678f, kRootTwoOverPi = 0.79788456f;
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x < 0 ? splat(0) : x;
    case Activation::kGelu:
      return 0.5f * x * (1 + erf(x * kRootHalf));
    case Activation::kGeluTanh:
      return 0.5f * x * (1 + tanh(kRootTwoOverPi * (x + 0.044715f * x * x * x)));
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kSigmoid:
      return sigmoid(x);
    case Activation::kTanh:
      return tanh(x);
  }
  return x;
}

template <Activation kActivation>
void apply_all(int64_t count, float* values) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats result = apply(kActivation, vector_math::load(values + i));
    __builtin_memcpy(values + i, &result, sizeof(result));
  }
  if (i == count) return;
  Floats rest{};
  __builtin_memcpy(&rest, values + i, (count - i) * sizeof(float));
  rest = apply(kActivation, rest);
  __builtin_memcpy(values + i, &rest, (count - i) * sizeof(float));
}

void activate_values(Activation activation, int64_t count, float* values) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      return apply_all<Activation::kRelu>(count, values);
    case Activation::kGelu:
      return apply_all<Activation::kGelu>(count, values);
    case Activation::kGeluTanh:
      return apply_all<Activation::kGeluTanh>(count, values);
    case Activation::kSilu:
      return apply_all<Activation::kSilu>(count, values);
    case Activation::kSigmoid:
      return apply_all<Activation::kSigmoid>(count, values);
    case Activation::kTanh:
      return apply_all<Activation::kTanh>(count, values);
  }
}
