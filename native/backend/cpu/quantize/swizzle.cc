// swizzle.cc: NVFP4 scales in the swizzled layout of cuBLASLt.
#include <algorithm>

#include "backend/cpu/cpu.h"

namespace spark::cpu {

void swizzle_scales(const SwizzleScalesArgs& args) {
  if (!args.inverse) std::fill_n(args.dst, (args.rows + 127) / 128 * ((args.cols + 3) / 4) * 512, uint8_t{0});
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t c = 0; c < args.cols; ++c) {
      const int64_t linear = r * args.cols + c, tiled = swizzled_index(r, c, args.cols);
      if (args.inverse) {
        args.dst[linear] = args.src[tiled];
      } else {
        args.dst[tiled] = args.src[linear];
      }
    }
  }
}

}  // namespace spark::cpu
