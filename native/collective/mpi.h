// mpi.h: a communicator over Open MPI, in a process that mpirun started. MPI starts once in a process and
// ends with it, so there is one such communicator, of one epoch.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "collective/communicator.h"

namespace spark::collective {

// What mpirun was asked for.
struct MpiSeat {
  uint64_t epoch;
  int rank, world;
  std::chrono::milliseconds timeout;  // of each wait for others
};

// Throws ERR_CONFLICT for a second one in this process. open() and leave() must have the same thread; open()
// throws ERR_UNSUPPORTED without Open MPI 4 or 5 that takes calls of many threads, ERR_CONFLICT where mpirun
// started another rank, or the rank of another epoch.
std::shared_ptr<Communicator> join_mpi(const MpiSeat& seat);

}  // namespace spark::collective
