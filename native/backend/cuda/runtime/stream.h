// stream.h: a queue of a device, and the thread that tells when it has got somewhere.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/cuda/runtime/driver.h"
#include "core/condition.h"

namespace spark::cuda {

class Device;
class Pool;
class Stream;

// Within its life the work of this thread goes to another stream, with temporary memory of another pool. One
// within another takes its place meanwhile.
class Redirection {
 public:
  Redirection(Stream& stream, Pool& scratch);
  // The work is captured by `capture` for `stream`, which does not do it now.
  Redirection(Stream& stream, CUstream capture, Pool& scratch);
  ~Redirection();
  Redirection(const Redirection&) = delete;
  Redirection& operator=(const Redirection&) = delete;

  // That of this thread, or null.
  static const Redirection* current();

  Stream& stream;
  const CUstream handle;
  Pool& scratch;
  const bool captured;

 private:
  const Redirection* const outer_;
};

class Stream {
 public:
  // `device` must be current.
  explicit Stream(Device& device);
  ~Stream();

  // The stream that work of this thread is for: that of a Redirection, or the first one of the device.
  static Stream& current(Device& device);

  // Where this thread enqueues work: this stream, or that of a Redirection.
  CUstream handle() const;

  // Temporary device memory of what is enqueued here.
  Pool& scratch() const { return *scratch_; }
  Device& device() const { return device_; }

  // Blocks until everything enqueued so far is done.
  void synchronize();

  using Done = std::function<void(std::exception_ptr failure)>;

  // Calls `done` on a thread of the stream when everything enqueued so far is done; `failure` is null unless
  // the device failed. `done` may call CUDA. A waiting thread rather than cuLaunchHostFunc, whose function is
  // never called after a kernel failed and may not free memory. Where the machine refuses that thread, the
  // calling one waits. When `then` throws, `done` is not called.
  void then(Done done);

 private:
  friend class Redirection;
  struct Waiting {
    CUevent event;
    Done done;
  };

  CUevent take_event();
  bool start_thread();
  void complete(Waiting waiting);
  void wait_in_order();

  Device& device_;
  CUstream handle_ = nullptr;
  const std::unique_ptr<Pool> scratch_;

  std::mutex mutex_;  // guards everything below
  Condition wake_;
  std::deque<Waiting> waiting_;
  std::vector<CUevent> free_events_;
  bool started_ = false;
};

}  // namespace spark::cuda
