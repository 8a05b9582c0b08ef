// labels.h: the checks of class labels and of numbers of adapters, where they can be read.
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

// The adapter of row t, -1 for none. Throws ERR_ARGUMENT unless it is one of `count`.
inline int64_t expect_adapter(const int32_t* index, int64_t t, int64_t count) {
  const int64_t adapter = index[t];
  if (adapter >= -1 && adapter < count) return adapter;
  throw Error("ERR_ARGUMENT", message("index[", t, "] is ", adapter, "; there are ", count, " adapters"));
}

}  // namespace spark
