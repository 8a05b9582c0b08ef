#include "core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "core/condition.h"

namespace spark {
namespace {

class Pool {
 public:
  static Pool& get() {
    static Pool* pool = new Pool;  // leaked: workers outlive static destructors
    return *pool;
  }

  void resize(int threads) {
    std::lock_guard turn(turn_);
    threads_ = threads > 0 ? threads : std::max(1u, std::thread::hardware_concurrency());
  }

  int threads() const { return threads_; }

  void run(int64_t chunks, const std::function<void(int64_t)>& chunk) {
    std::lock_guard turn(turn_);
    {
      std::lock_guard lock(mutex_);
      while (static_cast<int>(started_) < threads_ - 1) {
        std::thread([this] { work(); }).detach();
        ++started_;
      }
      chunk_ = &chunk;
      chunks_ = chunks;
      next_ = 0;
      helpers_wanted_ = std::min<int64_t>(threads_ - 1, chunks - 1);
      ++generation_;
    }
    wake_.notify_all();
    drain(chunk);
    std::unique_lock lock(mutex_);
    helpers_wanted_ = 0;
    done_.wait(lock, [this] { return busy_ == 0; });
    chunk_ = nullptr;
  }

 private:
  void drain(const std::function<void(int64_t)>& chunk) {
    for (int64_t i = next_++; i < chunks_; i = next_++) chunk(i);
  }

  void work() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return generation_ != seen; });
      seen = generation_;
      if (helpers_wanted_ == 0) continue;
      --helpers_wanted_;
      ++busy_;
      const auto* chunk = chunk_;
      lock.unlock();
      drain(*chunk);
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex turn_;   // one parallel_for at a time
  std::mutex mutex_;  // guards everything below
  Condition wake_, done_;
  std::atomic<int> threads_{static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  int started_ = 0, busy_ = 0;
  int64_t helpers_wanted_ = 0;
  uint64_t generation_ = 0;
  const std::function<void(int64_t)>* chunk_ = nullptr;
  int64_t chunks_ = 0;
  std::atomic<int64_t> next_{0};
};

}  // namespace

void set_thread_count(int threads) { Pool::get().resize(threads); }
int thread_count() { return Pool::get().threads(); }

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  const int64_t pieces = std::min<int64_t>((count + grain - 1) / grain, thread_count() * 4);
  if (pieces <= 1) return body(0, count);
  const int64_t size = std::max(grain, (count + pieces - 1) / pieces);
  const int64_t chunks = (count + size - 1) / size;
  Pool::get().run(chunks, [&](int64_t i) { body(i * size, std::min(count, (i + 1) * size)); });
}

}  // namespace spark
