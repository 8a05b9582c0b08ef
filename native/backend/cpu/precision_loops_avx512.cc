#include "backend/cpu/precision_loops_body.h"

namespace spark::cpu::avx512 {
const PrecisionLoops kPrecisionLoops = kLoops;
}
