#include "backend/dropout.h"

#include "backend/cpu/cpu.h"
#include "core/thread_pool.h"

namespace spark::cpu {

void dropout_mask(const DropoutMaskArgs& args) {
  parallel_for((args.count + 3) / 4, 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) drop_block(args, block);
  });
}

}  // namespace spark::cpu
