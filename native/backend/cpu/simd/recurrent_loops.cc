#include "backend/cpu/simd/recurrent_loops.h"

#include "backend/cpu/simd/widest.h"

namespace spark::cpu {

const RecurrentLoops& recurrent_loops() { return SPARK_WIDEST(kRecurrentLoops); }

}  // namespace spark::cpu
