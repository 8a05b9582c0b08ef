#include "backend/cpu/activation_loops.h"
#include "backend/cpu/vector_math.h"

namespace spark::cpu {
namespace {

#include "backend/cpu/activation_loops_body.h"

}  // namespace

const Activate avx2_activate = activate_values;

}  // namespace spark::cpu
