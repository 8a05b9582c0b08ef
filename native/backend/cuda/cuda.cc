// cuda.cc: the backend table of CUDA.
#include "backend/cuda/cuda.h"

namespace spark::cuda {

const Backend& backend() {
  static const Backend table = {
      .name = "cuda",
#define SPARK_OPERATION(entry, Args, name) .entry = entry,
#define SPARK_CPU_OPERATION(entry, Args, name)
#include "backend/operations.def"
  };
  return table;
}

}  // namespace spark::cuda
