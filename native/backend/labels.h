// labels.h: the check of class labels, where they can be read.
#pragma once

#include <cstdint>

#include "core/error.h"

namespace spark {

// Throws ERR_ARGUMENT unless all labels lie in [0, classes).
inline void expect_labels(const int32_t* labels, int64_t count, int64_t classes) {
  for (int64_t t = 0; t < count; ++t) {
    if (labels[t] < 0 || labels[t] >= classes) {
      throw Error("ERR_ARGUMENT",
                  message("labels[", t, "] is ", labels[t], "; there are ", classes, " classes"));
    }
  }
}

}  // namespace spark
