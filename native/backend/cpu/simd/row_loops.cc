#include "backend/cpu/simd/row_loops.h"

#include "backend/cpu/simd/widest.h"

namespace spark::cpu {

const RowLoops& row_loops() { return SPARK_WIDEST(kRowLoops); }

}  // namespace spark::cpu
