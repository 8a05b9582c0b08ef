// select.cc: elementwise selection by a condition (ONNX Where).
#include "backend/cpu/cpu.h"
#include "backend/cpu/strided.h"

namespace spark::cpu {
namespace {

template <typename T>
void choose(const SelectArgs& args) {
  for_each_row<3>(args.shape, {&args.condition_strides, &args.a_strides, &args.b_strides},
                  [&](int64_t row, int64_t count, const auto& offset, const auto& step) {
                    const uint8_t* condition = args.condition + offset[0];
                    const T* a = static_cast<const T*>(args.a) + offset[1];
                    const T* b = static_cast<const T*>(args.b) + offset[2];
                    T* y = static_cast<T*>(args.y) + row * count;
                    for (int64_t i = 0; i < count; ++i) {
                      y[i] = condition[i * step[0]] ? a[i * step[1]] : b[i * step[2]];
                    }
                  });
}

}  // namespace

void select(const SelectArgs& args) {
  with_bits(args.dtype, [&](auto bits) { choose<decltype(bits)>(args); });
}

}  // namespace spark::cpu
