#include "backend/cpu/simd/row_loops_body.h"

namespace spark::cpu::avx2 {
const RowLoops kRowLoops = kLoops;
}
