#include "backend/cpu/simd/precision_loops_body.h"

namespace spark::cpu::plain {
const PrecisionLoops kPrecisionLoops = kLoops;
}
