// recording.h: work for a device that is the same each time: enqueued at its first run, captured into a CUDA
// graph at its second, and replayed by one call from then on.
#pragma once

#include <functional>
#include <string>

#include "backend/cuda/runtime/memory.h"
#include "backend/cuda/runtime/stream.h"

namespace spark::cuda {

class Recording {
 public:
  // Without `graphs` nothing is captured, and the work is enqueued at every run.
  Recording(Stream& stream, bool graphs);
  ~Recording();  // the device must have passed the last run
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Enqueues `work`, or what was captured of it, on the stream; its device must be current. `work`
  // enqueues on the current stream, with the same operands at every call, and does not wait. Where capture
  // fails it is enqueued at every run. The first run may wait for the device, to measure (choice.h).
  void run(const std::function<void()>& work);

  // Whether there has been a run.
  bool has_run() const { return has_run_; }

  // Why the work could not be captured, or "".
  const std::string& problem() const { return problem_; }

 private:
  void capture(const std::function<void()>& work);

  Stream& stream_;
  Device& device_;
  const bool graphs_;
  Pool scratch_;  // its own: a graph uses the same memory at every launch
  CUgraphExec graph_ = nullptr;
  bool has_run_ = false;
  std::string problem_;
};

}  // namespace spark::cuda
