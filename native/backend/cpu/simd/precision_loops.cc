#include "backend/cpu/simd/precision_loops.h"

#include "backend/cpu/simd/widest.h"

namespace spark::cpu {

const PrecisionLoops& precision_loops() { return SPARK_WIDEST(kPrecisionLoops); }

}  // namespace spark::cpu
