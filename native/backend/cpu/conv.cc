#include <algorithm>

#include "backend/cpu/conv_reading.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/epilogue.h"
#include "backend/cpu/row_loops.h"

namespace spark::cpu {
namespace {

// Sums of filter o become elements of y from `at` on.
void finish(const ConvArgs& args, int64_t o, int64_t at, int64_t count, const float* sums) {
  constexpr int64_t kPiece = 256;
  float room[kPiece];
  const float bias = args.bias ? args.bias[o] : 0;
  for (int64_t done = 0; done < count; done += kPiece) {
    const int64_t piece = std::min(kPiece, count - done), first = at + done;
    float* values = args.residual ? room : args.y + first;  // y may be the residual
    const auto add_residual = [&](bool wanted) {
      if (!wanted || !args.residual) return;
      for (int64_t j = 0; j < piece; ++j) values[j] += args.residual[first + j];
    };
    row_loops().affine(sums + done, piece, 1, bias, values);
    add_residual(args.residual_first);
    activate(args.activation, piece, values);
    add_residual(!args.residual_first);
    if (args.residual) std::copy_n(values, piece, args.y + first);
  }
}

}  // namespace

void conv(const ConvArgs& args) {
  const ConvShape& shape = args.shape;
  const int64_t positions = volume(shape.out);
  if (shape.batch * shape.filters * positions == 0) return;
  const ConvReading reading(shape);
  std::unique_ptr<float[]> room;
  const bool loops = loops_over(shape.groups, shape.filters / shape.groups);
  const bool decode =
      loops || (args.weight.packed && shape.groups > 1);  // a group may begin inside of a panel
  ConvPart part{reading.taps(), {}, decode ? decoded(args.weight, room) : args.weight, {}};
  std::copy_n(shape.out, 3, part.size);
  part.store = [&](int64_t n, int64_t o, int64_t position, int64_t count, const float* sums) {
    finish(args, o, (n * shape.filters + o) * positions + position, count, sums);
  };
  convolve(reading.source(args.x), {part});
}

}  // namespace spark::cpu
