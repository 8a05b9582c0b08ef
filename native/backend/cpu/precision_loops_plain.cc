#include "backend/cpu/precision_loops_body.h"

namespace spark::cpu::plain {
const PrecisionLoops kPrecisionLoops = kLoops;
}
