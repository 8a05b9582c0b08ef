#include "backend/cpu/simd/byte_loops.h"

#include "backend/cpu/simd/widest.h"

namespace spark::cpu {

const ByteLoops& byte_loops() { return SPARK_WIDEST(kByteLoops); }

}  // namespace spark::cpu
