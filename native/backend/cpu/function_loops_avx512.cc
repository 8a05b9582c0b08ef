#include "backend/cpu/function_loops_body.h"

namespace spark::cpu::avx512 {
const FunctionLoops kFunctionLoops = kLoops;
}
