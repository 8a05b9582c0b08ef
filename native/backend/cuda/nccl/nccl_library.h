// nccl_library.h: the part of NCCL's ABI that communicators use, from version 2.18 on.
#pragma once

#include <climits>
#include <cstddef>

#include "backend/cuda/runtime/driver.h"
#include "core/library.h"

namespace spark::cuda {

struct NcclUniqueId {
  char bytes[128];
};

// ncclConfig_t of 2.18; newer versions fill in what they have besides.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = 0, cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

using NcclComm = struct NcclCommOpaque*;
using NcclResult = int;
constexpr NcclResult kNcclSuccess = 0, kNcclInProgress = 7;
constexpr int kNcclUint8 = 1, kNcclFloat32 = 7, kNcclSum = 0;

// libnccl.so.2, opened at first use.
class Nccl {
 public:
  // Throws ERR_UNSUPPORTED where there is no NCCL 2.18 or newer.
  static const Nccl& get();

  // Throws ERR_IO with NCCL's words, unless `result` is success or in progress.
  void check(NcclResult result, const char* doing) const;

  NcclResult (*ncclGetVersion)(int*);
  NcclResult (*ncclGetUniqueId)(NcclUniqueId*);
  NcclResult (*ncclCommInitRankConfig)(NcclComm*, int world, NcclUniqueId, int rank, NcclConfig*);
  NcclResult (*ncclCommGetAsyncError)(NcclComm, NcclResult*);
  NcclResult (*ncclCommAbort)(NcclComm);
  const char* (*ncclGetErrorString)(NcclResult);
  NcclResult (*ncclAllReduce)(const void*, void*, size_t, int dtype, int op, NcclComm, CUstream);
  NcclResult (*ncclAllGather)(const void*, void*, size_t, int dtype, NcclComm, CUstream);
  NcclResult (*ncclBroadcast)(const void*, void*, size_t, int dtype, int root, NcclComm, CUstream);
  NcclResult (*ncclSend)(const void*, size_t, int dtype, int peer, NcclComm, CUstream);
  NcclResult (*ncclRecv)(void*, size_t, int dtype, int peer, NcclComm, CUstream);

 private:
  Nccl();

  Library library_{"libnccl.so.2", "libnccl.so"};
};

}  // namespace spark::cuda
