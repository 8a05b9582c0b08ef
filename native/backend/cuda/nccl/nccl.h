// nccl.h: a communicator over NCCL. Arrays in host memory pass through pinned memory, which a GPU that shares
// the host's memory reaches as fast as any other; GB10 has no GPUDirect. Plans sum where their operands lie.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "backend/cuda/nccl/nccl_library.h"
#include "collective/communicator.h"

namespace spark::cuda {

// What all ranks must have from one of them: whoever knows it can join. One for collectives, two for
// messages.
using NcclSecret = std::array<NcclUniqueId, 3>;

NcclSecret make_nccl_secret();

// Such as 22803 for NCCL 2.28.3. Throws ERR_UNSUPPORTED where there is no NCCL 2.18 or newer.
int nccl_version();

struct NcclSeat {
  uint64_t epoch;
  int rank, world;
  std::chrono::milliseconds timeout;  // of each wait for others
  int ordinal;                        // of the GPU, which no other rank may have
  NcclSecret secret;
};

// Ranks whose sums are work of a stream, so that plans enqueue them and capture them into their graphs.
class StreamCommunicator : public collective::Communicator {
 public:
  // The GPU that this rank has.
  virtual int ordinal() const = 0;

  // Calls `enqueue`, and waits until the device, which must be current, has passed what it enqueued. Throws
  // as all_reduce() does; a communicator that has ended enqueues nothing.
  virtual void run(const std::function<void()>& enqueue) = 0;

  // Enqueues y[count] = the sums of x over all ranks where this thread enqueues work; x and y are memory of
  // the device and may be the same. Only while run() enqueues. With `compares` the ranks first compare what
  // they are about to do, which NCCL does not; that waits for them and cannot be captured.
  virtual void enqueue_all_reduce(const float* x, float* y, size_t count, bool compares) = 0;
};

// open() throws ERR_UNSUPPORTED without NCCL, ERR_NO_CUDA without the GPU, ERR_CONFLICT where ranks of
// another epoch come.
std::shared_ptr<StreamCommunicator> join_nccl(const NcclSeat& seat);

}  // namespace spark::cuda
