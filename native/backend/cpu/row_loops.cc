#include "backend/cpu/row_loops.h"

#include "backend/cpu/widest.h"

namespace spark::cpu {

const RowLoops& row_loops() { return SPARK_WIDEST(kRowLoops); }

}  // namespace spark::cpu
