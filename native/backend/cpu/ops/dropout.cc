// dropout.cc: dropout masks from Philox random numbers.
#include "backend/dropout.h"

#include "backend/cpu/cpu.h"
#include "core/thread_pool.h"

namespace spark::cpu {

constexpr int64_t kGrain = 1 << 12;  // draws of four numbers that a thread takes at a time

void dropout_mask(const DropoutMaskArgs& args) {
  parallel_for((args.count + 3) / 4, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) drop_block(args, block);
  });
}

}  // namespace spark::cpu
