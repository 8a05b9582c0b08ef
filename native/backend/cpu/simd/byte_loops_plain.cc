#include "backend/cpu/simd/byte_loops_body.h"

namespace spark::cpu::plain {
const ByteLoops kByteLoops = kLoops;
}
