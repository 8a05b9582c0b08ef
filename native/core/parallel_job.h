// parallel_job.h: one parallel_for in progress: ranges that threads claim, and seats for helpers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>

#include "core/condition.h"
#include "core/function_ref.h"
#include "core/shares.h"

namespace spark {

using RangeBody = FunctionRef<void(int64_t begin, int64_t end)>;

// Belongs to one caller at a time, which opens it, works on it, closes it and waits until it is empty.
// Helpers may look for a seat at any time: jobs are reused and never freed.
class alignas(64) ParallelJob {
 public:
  // Opens the job to `seats` helpers: body() over [0, count) in ranges of whole grains.
  void open(const RangeBody& body, int64_t count, int64_t grain, int64_t seats) {
    body_ = &body;
    count_ = count;
    grain_ = grain;
    shares_.open((count + grain - 1) / grain, seats + 1);
    state_.store(static_cast<uint64_t>(seats) * kSeat, std::memory_order_release);
  }

  // Keeps helpers from joining; whether seats were left.
  bool close() { return state_.fetch_and(kSeat - 1) >= kSeat; }

  // Whether no helper is in it. The job must be closed.
  bool empty() const { return (state_ & kHelpers) == 0; }

  // Sleeps until it is empty.
  void wait() {
    std::unique_lock lock(mutex_);
    state_ |= kAwaited;
    emptied_.wait(lock, [this] { return empty(); });
  }

  // What the first body threw that did, or null; once it is empty.
  std::exception_ptr take_failure() { return std::exchange(failure_, nullptr); }

  enum class Seat { kNone, kOne, kLast };

  // Takes a seat for a helper, which must work() and leave().
  Seat join() {
    uint64_t state = state_.load(std::memory_order_relaxed);
    do {
      if (state < kSeat) return Seat::kNone;
    } while (!state_.compare_exchange_weak(state, state - kSeat + 1));
    return state < 2 * kSeat ? Seat::kLast : Seat::kOne;
  }

  void leave() {
    const uint64_t before = state_.fetch_sub(1);
    if ((before & kHelpers) != 1 || !(before & kAwaited)) return;
    std::lock_guard lock(mutex_);
    emptied_.notify_one();
  }

  // Claims ranges, first of share `own`, and calls the body on them until none is left.
  void work(int64_t own) {
    try {
      for (int64_t begin, end; shares_.claim(own, begin, end);)
        (*body_)(begin * grain_, std::min(count_, end * grain_));
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      shares_.finish();
    }
  }

 private:
  // Parts of state_: helpers in the job, whether the caller sleeps until they have left, seats.
  static constexpr uint64_t kHelpers = (1ull << 31) - 1, kAwaited = 1ull << 31, kSeat = 1ull << 32;

  const RangeBody* body_ = nullptr;
  int64_t count_ = 0, grain_ = 1;
  Shares shares_;  // of grains
  std::exception_ptr failure_;
  std::mutex mutex_;  // guards failure_ while the job is open, and the sleep of the caller
  Condition emptied_;
  alignas(64) std::atomic<uint64_t> state_ = 0;  // on a cache line of its own: others watch it
};

}  // namespace spark
