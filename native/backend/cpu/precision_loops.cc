#include "backend/cpu/precision_loops.h"

#include "backend/cpu/widest.h"

namespace spark::cpu {

const PrecisionLoops& precision_loops() { return SPARK_WIDEST(kPrecisionLoops); }

}  // namespace spark::cpu
