#include "plan/plan.h"

#include "core/error.h"

namespace spark {

void Plan::add(std::string op, std::function<void()> work) {
  steps_.push_back({std::move(op), std::move(work)});
}

void Plan::claim() {
  if (claimed_.exchange(true)) {
    throw Error("ERR_ARGUMENT", "the plan is running: wait for its promise, or compile the model once more");
  }
}

void Plan::run() {
  struct Free {
    Plan& plan;
    ~Free() { plan.release(); }
  } free{*this};
  const auto start = std::chrono::steady_clock::now();
  perform();
  last_run_ = std::chrono::steady_clock::now() - start;
}

void Plan::perform() {
  for (size_t i = 0; i < steps_.size(); ++i) {
    try {
      steps_[i].work();
    } catch (const Error& error) {
      throw Error(error.code, message("step ", i, " of the plan, ", steps_[i].op, ": ", error.what()));
    }
  }
}

}  // namespace spark
