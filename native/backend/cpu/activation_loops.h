// activation_loops.h: the activations of a linear layer. activation_loops_body.h has the loops;
// activation_loops_<isa>.cc compile them.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

using Activate = void (*)(Activation activation, int64_t count, float* values);

// Those of epilogue.h.
extern const Activate plain_activate, avx2_activate, avx512_activate;

}  // namespace spark::cpu
