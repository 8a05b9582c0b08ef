// delegate.cc: sums that JavaScript makes, for plans that wait for them.
#include "collective/delegate.h"

#include <algorithm>

#include "core/error.h"

namespace spark::collective {
namespace {

[[noreturn]] void refuse(const char* op) {
  throw Error("ERR_UNSUPPORTED", message(op, ": plans only sum over these ranks"));
}

}  // namespace

void Delegate::all_reduce(float* values, size_t count) {
  std::unique_lock lock(mutex_);
  if (over_) throw Error("ERR_IO", reason_);
  values_ = values;
  count_ = count;
  const uint64_t number = ++number_;
  lock.unlock();
  ask_(shared_from_this(), number);
  lock.lock();
  changed_.wait(lock, [this] { return over_ || !values_; });
  const bool is_done = !values_;
  values_ = nullptr;
  if (!is_done) throw Error("ERR_IO", reason_);
}

bool Delegate::take(uint64_t number, const std::function<void(const float*, size_t)>& use) {
  const std::lock_guard lock(mutex_);
  if (!values_ || number != number_) return false;
  use(values_, count_);
  return true;
}

void Delegate::give(uint64_t number, const float* sums, size_t count) {
  const std::lock_guard lock(mutex_);
  if (!values_ || number != number_) return;
  if (count != count_)
    throw Error("ERR_SHAPE", message("there are ", count, " sums for ", count_, " values"));
  std::copy_n(sums, count, values_);
  values_ = nullptr;
  changed_.notify_all();
}

void Delegate::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  over_ = true;
  reason_ = reason;
  changed_.notify_all();
}

void Delegate::leave() { abort(message("rank ", rank_, " has left its communicator")); }

void Delegate::send(int, const void*, size_t) { refuse("send"); }
void Delegate::recv(int, void*, size_t) { refuse("recv"); }
void Delegate::all_gather(const void*, size_t, void*) { refuse("allGather"); }
void Delegate::broadcast(void*, size_t, int) { refuse("broadcast"); }
void Delegate::barrier() { refuse("barrier"); }

}  // namespace spark::collective
