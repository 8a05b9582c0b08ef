// stream.h: the queue of a device, and the thread that tells when it has got somewhere.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "backend/cuda/driver.h"

namespace spark::cuda {

class Device;

class Stream {
 public:
  // `device` must be current.
  explicit Stream(Device& device);

  CUstream handle() const { return handle_; }

  // Blocks until everything enqueued so far is done.
  void synchronize();

  using Done = std::function<void(std::exception_ptr failure)>;

  // Calls `done` on a thread of the stream when everything enqueued so far is done; `failure` is null unless
  // the device failed. `done` may call CUDA. A waiting thread rather than cuLaunchHostFunc, whose function is
  // never called after a kernel failed and may not free memory. When `then` throws, `done` is not called.
  void then(Done done);

 private:
  struct Waiting {
    CUevent event;
    Done done;
  };

  CUevent take_event();
  void wait_in_order();

  Device& device_;
  CUstream handle_ = nullptr;

  std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  std::deque<Waiting> waiting_;
  std::vector<CUevent> free_events_;
  bool started_ = false;
};

}  // namespace spark::cuda
