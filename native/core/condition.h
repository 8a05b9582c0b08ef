// condition.h: a condition variable for addons that must load with older C++ runtimes.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <chrono>
#include <mutex>

namespace spark {

// std::condition_variable::wait, compiled with GCC 12 or newer, needs GLIBCXX_3.4.30, which the libstdc++ of
// RHEL 9 lacks. This is the same over POSIX.
class Condition {
 public:
  Condition() = default;
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;
  ~Condition() { pthread_cond_destroy(&condition_); }

  // Returns when `ready()` holds; it is called with the lock held.
  template <typename Ready>
  void wait(std::unique_lock<std::mutex>& lock, Ready ready) {
    while (!ready()) pthread_cond_wait(&condition_, lock.mutex()->native_handle());
  }
  // The same until `deadline`; whether `ready()` holds.
  template <typename Ready>
  bool wait_until(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point deadline,
                  Ready ready) {
    const auto since = deadline.time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
    const timespec time{seconds.count(), std::chrono::nanoseconds(since - seconds).count()};
    while (!ready()) {
      const int status =
          pthread_cond_clockwait(&condition_, lock.mutex()->native_handle(), CLOCK_MONOTONIC, &time);
      if (status == ETIMEDOUT) return ready();
    }
    return true;
  }
  void notify_one() { pthread_cond_signal(&condition_); }
  void notify_all() { pthread_cond_broadcast(&condition_); }

 private:
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

}  // namespace spark
