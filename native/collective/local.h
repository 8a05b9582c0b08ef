// local.h: a communicator whose ranks are threads of this process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "collective/communicator.h"

namespace spark::collective {

// Where a rank belongs. Ranks with the same name meet; a newer epoch of a name ends older ones.
struct Seat {
  std::string name;
  uint64_t epoch;
  int rank, world;
  std::chrono::milliseconds timeout;  // of each wait for others
};

// Throws ERR_CONFLICT for a rank that is taken, a world of another size, and an epoch that is over.
std::shared_ptr<Communicator> join_local(const Seat& seat);

}  // namespace spark::collective
