#include "backend/cuda/choice.h"

#include <map>
#include <mutex>

#include "backend/cuda/device.h"
#include "backend/cuda/stream.h"

namespace spark::cuda {
namespace {

enum class Way { kUndecided, kOwn, kOther };

struct Span {
  CUevent start = nullptr, end = nullptr;

  // Milliseconds, negative while the device has not passed the span.
  float milliseconds(const Driver& driver) const {
    float time = 0;
    return end && driver.cuEventElapsedTime(&time, start, end) == kSuccess ? time : -1;
  }
};

struct Trial {
  int calls = 0;
  Way way = Way::kUndecided;
  Span own, other;
};

struct Trials {
  std::mutex mutex;
  std::map<std::pair<Device*, std::string>, Trial> of;

  static Trials& get() {
    static Trials* trials = new Trials;  // leaked: used until the process is gone
    return *trials;
  }
};

template <typename Work>
Span timed(Device& device, const Work& work) {
  Span span;
  const Driver& driver = device.driver;
  const CUstream stream = device.stream().handle();
  device.check(driver.cuEventCreate(&span.start, 0), "cuEventCreate");
  device.check(driver.cuEventCreate(&span.end, 0), "cuEventCreate");
  device.check(driver.cuEventRecord(span.start, stream), "cuEventRecord");
  work();
  device.check(driver.cuEventRecord(span.end, stream), "cuEventRecord");
  return span;
}

Way decide(const Driver& driver, const Trial& trial) {
  const float own = trial.own.milliseconds(driver), other = trial.other.milliseconds(driver);
  if (own < 0 || other < 0) return Way::kUndecided;
  return other < own ? Way::kOther : Way::kOwn;
}

}  // namespace

void enqueue_faster(const std::string& key, const std::function<void()>& own,
                    const std::function<bool()>& other) {
  Device& device = Device::current();
  Trials& trials = Trials::get();
  std::lock_guard lock(trials.mutex);
  Trial& trial = trials.of[{&device, key}];
  if (trial.way == Way::kUndecided) {
    switch (trial.calls++) {
      case 0:
        return own();
      case 1:
        trial.own = timed(device, own);
        return;
      case 2:
        if (other()) return;
        trial.way = Way::kOwn;
        break;
      case 3:
        trial.other = timed(device, other);
        return;
      default:
        trial.way = decide(device.driver, trial);
    }
  }
  if (trial.way != Way::kOther || !other()) own();
}

}  // namespace spark::cuda
