#include "backend/cpu/simd/precision_loops_body.h"

namespace spark::cpu::avx2 {
const PrecisionLoops kPrecisionLoops = kLoops;
}
