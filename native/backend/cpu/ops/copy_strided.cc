// copy_strided.cc: copies between strided tensors.
#include <cstring>

#include "backend/cpu/cpu.h"
#include "backend/cpu/strided.h"

namespace spark::cpu {
namespace {

template <typename T>
void copy(const CopyStridedArgs& args) {
  for_each_row<2>(args.shape, {&args.src_strides, &args.dst_strides},
                  [&](int64_t, int64_t count, const auto& offset, const auto& step) {
                    const T* src = static_cast<const T*>(args.src) + args.src_offset + offset[0];
                    T* dst = static_cast<T*>(args.dst) + args.dst_offset + offset[1];
                    if (step[0] == 1 && step[1] == 1) {
                      std::memcpy(dst, src, count * sizeof(T));
                    } else {
                      for (int64_t i = 0; i < count; ++i) dst[i * step[1]] = src[i * step[0]];
                    }
                  });
}

}  // namespace

void copy_strided(const CopyStridedArgs& args) {
  with_bits(args.dtype, [&](auto bits) { copy<decltype(bits)>(args); });
}

}  // namespace spark::cpu
