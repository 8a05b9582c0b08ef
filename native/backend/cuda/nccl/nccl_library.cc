// nccl_library.cc: loading NCCL.
#include "backend/cuda/nccl/nccl_library.h"

#include "core/error.h"

namespace spark::cuda {

Nccl::Nccl() {
  if (!library_.ok()) {
    throw Error("ERR_UNSUPPORTED", message("kind 'nccl' needs NCCL 2.18 or newer: apt-get install libnccl2 (",
                                           library_.reason(), ")"));
  }
  const auto require = [this](auto& entry, const char* symbol) {
    if (library_.bind(entry, symbol)) return;
    throw Error("ERR_UNSUPPORTED",
                message(library_.name(), " lacks ", symbol, ": kind 'nccl' needs NCCL 2.18 or newer"));
  };
#define SPARK_BIND(name) require(name, #name)
  SPARK_BIND(ncclGetVersion);
  SPARK_BIND(ncclGetUniqueId);
  SPARK_BIND(ncclCommInitRankConfig);
  SPARK_BIND(ncclCommGetAsyncError);
  SPARK_BIND(ncclCommAbort);
  SPARK_BIND(ncclGetErrorString);
  SPARK_BIND(ncclAllReduce);
  SPARK_BIND(ncclAllGather);
  SPARK_BIND(ncclBroadcast);
  SPARK_BIND(ncclSend);
  SPARK_BIND(ncclRecv);
#undef SPARK_BIND
  int version = 0;
  ncclGetVersion(&version);
  if (version < 21800) {
    throw Error("ERR_UNSUPPORTED", message("NCCL ", version / 10000, ".", version / 100 % 100,
                                           " is installed; kind 'nccl' needs 2.18 or newer"));
  }
}

const Nccl& Nccl::get() {
  static const Nccl nccl;
  return nccl;
}

void Nccl::check(NcclResult result, const char* doing) const {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  throw Error("ERR_IO", message(doing, ": NCCL: ", ncclGetErrorString(result)));
}

}  // namespace spark::cuda
