// cpu.cc: the backend table of the CPU.
#include "backend/cpu/cpu.h"

namespace spark::cpu {

const Backend& backend() {
  static const Backend table = {
      .name = "cpu",
#define SPARK_OPERATION(entry, Args, name) .entry = entry,
#include "backend/operations.def"
  };
  return table;
}

}  // namespace spark::cpu
