#include "backend/cpu/simd/function_loops_body.h"

namespace spark::cpu::plain {
const FunctionLoops kFunctionLoops = kLoops;
}
