// delegate.h: a communicator of plans whose sums are made elsewhere: by JavaScript, over links.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "collective/communicator.h"
#include "core/condition.h"

namespace spark::collective {

// Only all_reduce() works: it asks, and waits until the sums or an abort come. Other calls between ranks
// throw ERR_UNSUPPORTED.
class Delegate : public Communicator, public std::enable_shared_from_this<Delegate> {
 public:
  // Asks for the sums of the values that take() hands out under this number. Called off the JavaScript
  // thread.
  using Ask = std::function<void(const std::shared_ptr<Delegate>& self, uint64_t number)>;

  Delegate(int rank, int world, Ask ask) : rank_(rank), world_(world), ask_(std::move(ask)) {}

  // Calls `use` with the values of a call; whether it still waits.
  bool take(uint64_t number, const std::function<void(const float* values, size_t count)>& use);

  // Ends the call with its sums; ignored where it does not wait any more. Throws ERR_SHAPE for another count.
  void give(uint64_t number, const float* sums, size_t count);

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  void open() override {}
  void all_reduce(float* values, size_t count) override;
  void send(int to, const void* bytes, size_t size) override;
  void recv(int from, void* bytes, size_t size) override;
  void all_gather(const void* bytes, size_t size, void* all) override;
  void broadcast(void* bytes, size_t size, int root) override;
  void barrier() override;
  void abort(const std::string& reason) override;
  void leave() override;

 private:
  const int rank_, world_;
  const Ask ask_;
  std::mutex mutex_;
  Condition changed_;
  float* values_ = nullptr;  // of the call that waits; null while none does
  size_t count_ = 0;
  uint64_t number_ = 0;
  bool over_ = false;
  std::string reason_;
};

}  // namespace spark::collective
