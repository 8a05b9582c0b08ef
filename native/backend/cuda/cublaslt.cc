#include "backend/cuda/cublaslt.h"

#include "core/library.h"

namespace spark::cuda {

CublasLtReport query_cublaslt() {
  static const Library* library =
      new Library{"libcublasLt.so.13", "libcublasLt.so.12"};  // leaked, as all drivers
  CublasLtReport report{library->reason(), std::nullopt, std::nullopt};
  if (!library->ok()) return report;
  report.library = library->name();
  size_t (*get_version)();
  if (library->bind(get_version, "cublasLtGetVersion")) {
    report.version = get_version();
  } else {
    report.reason = library->name() + " lacks cublasLtGetVersion";
  }
  return report;
}

}  // namespace spark::cuda
