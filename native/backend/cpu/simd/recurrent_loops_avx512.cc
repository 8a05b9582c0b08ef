#include "backend/cpu/simd/recurrent_loops_body.h"

namespace spark::cpu::avx512 {
const RecurrentLoops kRecurrentLoops = kLoops;
}
