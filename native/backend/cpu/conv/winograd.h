// winograd.h: convolutions of 3 x 3 in tiles of 4 x 4, with a quarter of the multiplications.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// conv() with args.winograd. Channels are summed in the order of a product; a result depends on neither its
// neighbours in the batch nor the number of threads.
void winograd_conv(const ConvArgs& args);

}  // namespace spark::cpu
