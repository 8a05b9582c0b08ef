#include "backend/cpu/simd/precision_loops_body.h"

namespace spark::cpu::avx512 {
const PrecisionLoops kPrecisionLoops = kLoops;
}
