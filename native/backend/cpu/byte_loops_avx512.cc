#include "backend/cpu/byte_loops_body.h"

namespace spark::cpu::avx512 {
const ByteLoops kByteLoops = kLoops;
}
