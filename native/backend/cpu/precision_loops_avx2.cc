#include "backend/cpu/precision_loops_body.h"

namespace spark::cpu::avx2 {
const PrecisionLoops kPrecisionLoops = kLoops;
}
