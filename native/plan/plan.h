// plan.h: a compiled plan: operations whose operands are bound, run one after another without an allocation.
// What the steps work on (arena, constants, carried state, inputs and outputs) belongs to whoever made them.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace spark {

class Plan {
 public:
  void add(std::string op, std::function<void()> work);

  // Step i becomes another work.
  void replace(size_t i, std::function<void()> work) { steps_[i].work = std::move(work); }

  // Reserves the plan for one run, or repeated ones, until release(): its operands are shared by all runs, so
  // that two would overwrite each other. Throws ERR_ARGUMENT when it is taken.
  void claim();

  // Gives the plan free.
  void release() { claimed_ = false; }

  // Performs all steps. A step that fails ends the run; its error says which it was.
  void perform();

  // Performs `pass` so many times, unless stop() ends that before.
  void repeat(int64_t times, const std::function<void()>& pass);

  // As perform(), so many times, and takes the time.
  void run(int64_t times = 1);

  // Ends repeat() after the pass in progress, from any thread.
  void stop() { stopped_ = true; }

  // As run() once, and takes the time of each step.
  void profile();

  // Milliseconds of each step of the last profile().
  const std::vector<double>& step_times() const { return step_times_; }

  // How long the last run took; the longest duration before the first one.
  std::chrono::nanoseconds last_run() const { return last_run_; }

  // A guess at the next run, which works on so many times the bytes.
  void scale_last_run(double factor);

 private:
  void perform(size_t i);

  struct Step {
    std::string op;
    std::function<void()> work;
  };

  std::vector<Step> steps_;
  std::vector<double> step_times_;
  std::atomic<bool> claimed_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<std::chrono::nanoseconds> last_run_{std::chrono::nanoseconds::max()};
};

}  // namespace spark
