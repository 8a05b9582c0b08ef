#include "backend/cpu/simd/byte_loops_body.h"

namespace spark::cpu::avx512 {
const ByteLoops kByteLoops = kLoops;
}
