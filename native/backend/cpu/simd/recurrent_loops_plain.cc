#include "backend/cpu/simd/recurrent_loops_body.h"

namespace spark::cpu::plain {
const RecurrentLoops kRecurrentLoops = kLoops;
}
