// conv_bf16.h: convolutions in bf16.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// Whether conv_bf16 is for the convolution: it asks for bf16, which this machine multiplies, and a group has
// filters enough.
bool takes_bf16(const ConvArgs& args);

// conv() of x and weight rounded to bf16. An output element depends neither on the batch nor on the threads.
void conv_bf16(const ConvArgs& args);

}  // namespace spark::cpu
