// linear_integer.cc: launchers of int8 linear layers.
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/launch.h"
#include "core/error.h"
#include "kernels/gemm/blocks.h"

namespace spark::cuda {
namespace {

constexpr int64_t kBlocksOfProcessor = 2;  // of tiles of 128, at the same time

int64_t tiles_of(const LinearIntegerArgs& args, int tile) {
  return ceil_div(args.tokens, tile) * ceil_div(args.rows, tile);
}

std::string kernel_name(int variant, const LinearIntegerArgs& args) {
  return message("linear_integer_mma_", variant, args.x_signed ? "_i8" : "_u8",
                 args.w_signed ? "_i8" : "_u8");
}

void launch_few(const LinearIntegerArgs& args) {
  using namespace linear_few_mma_block;
  launch("linear_integer_few_mma", kernel_name(args.tokens <= 8 ? 8 : 16, args),
         Grid{args.tokens > 0 ? ceil_div(args.rows, kRows) : 0}, Threads{threads(args.rows)}, 0, args);
}

// Tiles of 128 need fewer elements of both sides; those of 64 are more, for more processors.
void launch_tiles(const LinearIntegerArgs& args) {
  using namespace linear_integer_mma_block;
  const int64_t blocks = kBlocksOfProcessor * Device::current().attributes.multiprocessors;
  const int tile = tiles_of(args, kLargeTile) >= blocks ? kLargeTile : kSmallTile;
  launch("linear_integer_mma", kernel_name(tile, args), Grid{tiles_of(args, tile)}, Threads{threads(tile)}, 0,
         args);
}

}  // namespace

void linear_integer(const LinearIntegerArgs& args) {
  if (args.packed) {
    throw Error("ERR_UNSUPPORTED", "the cuda backend has no linearInteger with packed weights");
  }
  args.tokens <= linear_few_mma_block::kTokens ? launch_few(args) : launch_tiles(args);
}

}  // namespace spark::cuda
