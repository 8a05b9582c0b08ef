// nccl.h: a communicator over NCCL, of arrays in host memory. They pass through pinned memory, which a GPU
// that shares the host's memory reaches as fast as any other; GB10 has no GPUDirect.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>

#include "backend/cuda/nccl/nccl_library.h"
#include "collective/communicator.h"

namespace spark::cuda {

// What all ranks must have from one of them: whoever knows it can join. One for collectives, two for
// messages.
using NcclSecret = std::array<NcclUniqueId, 3>;

NcclSecret make_nccl_secret();

struct NcclSeat {
  uint64_t epoch;
  int rank, world;
  std::chrono::milliseconds timeout;  // of each wait for others
  int ordinal;                        // of the GPU, which no other rank may have
  NcclSecret secret;
};

// open() throws ERR_UNSUPPORTED without NCCL, ERR_NO_CUDA without the GPU, ERR_CONFLICT where ranks of
// another epoch come.
std::shared_ptr<collective::Communicator> join_nccl(const NcclSeat& seat);

}  // namespace spark::cuda
