#include "backend/cpu/simd/recurrent_loops_body.h"

namespace spark::cpu::avx2 {
const RecurrentLoops kRecurrentLoops = kLoops;
}
