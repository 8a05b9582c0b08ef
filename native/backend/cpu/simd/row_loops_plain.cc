#include "backend/cpu/simd/row_loops_body.h"

namespace spark::cpu::plain {
const RowLoops kRowLoops = kLoops;
}
