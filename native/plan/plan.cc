// plan.cc: execution of a plan.
#include "plan/plan.h"

#include <chrono>
#include <cstdint>

#include "core/error.h"

namespace spark {

void Plan::add(std::string op, std::function<void()> work) {
  steps_.push_back({std::move(op), std::move(work)});
}

void Plan::claim() {
  if (claimed_.exchange(true)) {
    throw Error("ERR_ARGUMENT", "the plan is running: wait for its promise, or compile the model once more");
  }
  stopped_ = false;
}

void Plan::repeat(int64_t times, const std::function<void()>& pass) {
  for (int64_t i = 0; i < times && !stopped_; ++i) pass();
}

void Plan::run(int64_t times) {
  const auto start = std::chrono::steady_clock::now();
  repeat(times, [this] { perform(); });
  last_run_ = std::chrono::steady_clock::now() - start;
}

void Plan::scale_last_run(double factor) {
  const auto longest = std::chrono::nanoseconds::max();
  const double next = static_cast<double>(last_run_.load().count()) * factor;
  last_run_ = next < static_cast<double>(longest.count())
                  ? std::chrono::nanoseconds(static_cast<int64_t>(next))
                  : longest;
}

void Plan::perform() {
  for (size_t i = 0; i < steps_.size(); ++i) perform(i);
}

void Plan::perform(size_t i) {
  try {
    steps_[i].work();
  } catch (const Error& error) {
    throw Error(error.code, message("step ", i, " of the plan, ", steps_[i].op, ": ", error.what()));
  }
}

void Plan::profile() {
  step_times_.clear();
  step_times_.reserve(steps_.size());
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    perform(i);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    step_times_.push_back(took.count());
  }
  last_run_ = std::chrono::steady_clock::now() - begin;
}

}  // namespace spark
