#include "backend/cpu/simd/row_loops_body.h"

namespace spark::cpu::avx512 {
const RowLoops kRowLoops = kLoops;
}
