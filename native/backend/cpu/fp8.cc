#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu.h"
#include "backend/cpu/formats.h"
#include "core/quantizers.h"
#include "core/thread_pool.h"

namespace spark::cpu {

void fp8_quantize(const Fp8QuantizeArgs& args) {
  const int64_t cols = args.cols, grain = std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(1, cols));
  with_wide_format("fp8_quantize", args.src_dtype, [&](auto format) {
    using Src = decltype(format);
    const auto* src = static_cast<const typename Src::Code*>(args.src);
    parallel_for(args.rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const auto* row = src + r * cols;
        uint8_t* codes = args.codes + r * cols;
        float amax = 0;
        for (int64_t c = 0; c < cols; ++c) amax = std::max(amax, std::fabs(Src::decode(row[c])));
        const float scale = args.row_scale[r] = fp8_row_scale(amax);
        for (int64_t c = 0; c < cols; ++c) codes[c] = fp8_code(Src::decode(row[c]), scale);
      }
    });
  });
}

}  // namespace spark::cpu
