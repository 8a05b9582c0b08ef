// communicator.h: what ranks do together. A world has `world()` ranks, numbered from 0, that all call the
// same collectives in the same order with the same lengths; send and recv are between two of them.
#pragma once

#include <cstddef>
#include <string>

namespace spark::collective {

// Every call but rank(), world() and abort() waits for other ranks: never call one on the JavaScript thread.
// It throws Error: ERR_SHAPE for lengths that differ, ERR_IO once the communicator was aborted, a peer is
// gone or the time is over. What fails in a collective ends the communicator: every later call throws the
// same. One thread may be in send() while others are in recv() or a collective; calls of one of these three
// groups wait for each other.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;

  // Waits until all ranks are here. The first call.
  virtual void open() = 0;

  // Replaces values[count] by their sums over all ranks. `local` adds in the order of ranks, so that all
  // ranks and all runs get the same bits; the order of others is that of their library.
  virtual void all_reduce(float* values, size_t count) = 0;

  // To and from one other rank, in the order of the calls. send() returns when `bytes` may change.
  virtual void send(int to, const void* bytes, size_t size) = 0;
  virtual void recv(int from, void* bytes, size_t size) = 0;

  // all[world() * size] becomes the bytes[size] of all ranks, in their order. They may overlap only where
  // `bytes` is the rank's own part of `all`.
  virtual void all_gather(const void* bytes, size_t size, void* all) = 0;

  // Replaces bytes[size] by those of rank `root`.
  virtual void broadcast(void* bytes, size_t size, int root) = 0;

  // Returns when all ranks are here.
  virtual void barrier() = 0;

  // Ends all calls in progress, on all ranks as far as they can be reached, with ERR_IO and `reason`. From
  // any thread. The first reason counts.
  virtual void abort(const std::string& reason) = 0;

  // The last call: others who wait for this rank are told that it left.
  virtual void leave() = 0;
};

}  // namespace spark::collective
