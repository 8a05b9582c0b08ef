#include "backend/cpu/simd/function_loops.h"

#include "backend/cpu/simd/widest.h"

namespace spark::cpu {

const FunctionLoops& function_loops() { return SPARK_WIDEST(kFunctionLoops); }

}  // namespace spark::cpu
