// thread_pool.cc: the worker threads behind parallel_for.
#include "core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/condition.h"

namespace spark {
namespace {

using Chunk = FunctionRef<void(int64_t)>;

// How long a thread watches for what is about to happen before it sleeps. More than the gap between two steps
// of a plan, less than what anybody would notice as load.
constexpr std::chrono::microseconds kWatch{50};

// Grains that are worth waking threads for; less is done before they have come. So many in a moment are worth
// it, too: models of some microseconds, run one after another.
constexpr int64_t kWorthWaking = 4, kWorthWakingTogether = 16;
constexpr std::chrono::microseconds kMoment{500};

// How long after the machine refused a thread (a limit on processes or memory) the next is asked for.
constexpr std::chrono::seconds kUntilNextThread{1};

thread_local bool undelayed = false, in_chunk = false;
thread_local int thread_limit = 0;  // 0: none

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Watches until `ready()` holds; false when that took too long.
template <typename Ready>
bool watch(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + kWatch;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

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

  // False when the calling thread does better on its own: it must not wait for its turn, or all others sleep.
  bool run(int threads, int64_t chunks, int64_t grains, const Chunk& chunk) {
    if (in_chunk) return false;  // it has the turn that a call in it would wait for
    if (started_ > 0 && sleepers_ == started_ && !worth_waking(grains)) return false;
    std::unique_lock turn(turn_, std::defer_lock);
    if (!undelayed) {
      turn.lock();
    } else if (!turn.try_lock()) {
      return false;
    }
    bool asleep;
    {
      std::lock_guard lock(mutex_);
      if (started_ < threads - 1) start_threads(threads);
      chunk_ = &chunk;
      chunks_ = chunks;
      next_ = 0;
      helpers_wanted_ = std::min<int64_t>({threads - 1, started_, chunks - 1});
      ++generation_;
      asleep = sleepers_ > 0;
    }
    if (asleep) wake_.notify_all();
    drain(chunk);
    {
      std::lock_guard lock(mutex_);
      helpers_wanted_ = 0;
    }
    if (!watch([this] { return busy_ == 0; })) {
      std::unique_lock lock(mutex_);
      done_.wait(lock, [this] { return busy_ == 0; });
    }
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return true;
  }

 private:
  bool worth_waking(int64_t grains) {
    if (grains >= kWorthWaking) return true;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    if (now - moment_.load() > kMoment) {
      moment_ = now;
      alone_ = 0;
    }
    return (alone_ += grains) >= kWorthWakingTogether;
  }

  void start_threads(int threads) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_start_) return;
    try {
      while (started_ < threads - 1) {
        std::thread([this] { work(); }).detach();
        ++started_;
      }
    } catch (const std::exception&) {
      next_start_ = now + kUntilNextThread;
    }
  }

  void drain(const Chunk& chunk) {
    in_chunk = true;
    try {
      for (int64_t i = next_++; i < chunks_; i = next_++) chunk(i);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      next_ = chunks_;
    }
    in_chunk = false;
  }

  void work() {
    uint64_t seen = 0;
    for (;;) {
      const auto called = [&] { return generation_ != seen; };
      const bool at_once = watch(called);
      if (at_once) {
        seen = generation_;
        if (helpers_wanted_ == 0) continue;  // enough have come
      }
      std::unique_lock lock(mutex_);
      if (!at_once) {
        ++sleepers_;
        wake_.wait(lock, called);
        --sleepers_;
      }
      seen = generation_;
      if (helpers_wanted_ == 0) continue;
      --helpers_wanted_;
      ++busy_;
      const Chunk* chunk = chunk_;
      lock.unlock();
      drain(*chunk);
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex turn_;   // one parallel_for at a time
  std::mutex mutex_;  // guards everything below; atomics are also read without it
  Condition wake_, done_;
  std::atomic<int> threads_{static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  std::atomic<int> started_ = 0, sleepers_ = 0;
  std::atomic<std::chrono::steady_clock::duration> moment_{};  // when it began
  std::atomic<int64_t> alone_ = 0;                             // grains done in it while all slept
  std::chrono::steady_clock::time_point next_start_{};         // no thread is started before
  const Chunk* chunk_ = nullptr;
  int64_t chunks_ = 0;
  std::exception_ptr failure_;  // the first of a run
  // Each on a cache line of its own: others watch it.
  alignas(64) std::atomic<int64_t> next_ = 0;
  alignas(64) std::atomic<uint64_t> generation_ = 0;
  alignas(64) std::atomic<int64_t> helpers_wanted_ = 0;
  alignas(64) std::atomic<int> busy_ = 0;
};

}  // namespace

void set_thread_count(int threads) { Pool::get().resize(threads); }
int thread_count() { return thread_limit > 0 ? thread_limit : Pool::get().threads(); }

void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> body, int64_t grains) {
  if (count <= 0) return;
  const int threads = thread_count();
  const int64_t pieces = std::min<int64_t>((count + grain - 1) / grain, threads * 4);
  if (pieces <= 1 || threads == 1) return body(0, count);
  const int64_t size = std::max(grain, (count + pieces - 1) / pieces);
  const int64_t chunks = (count + size - 1) / size;
  const auto chunk = [&](int64_t i) { body(i * size, std::min(count, (i + 1) * size)); };
  if (!Pool::get().run(threads, chunks, std::max(chunks, grains), chunk)) body(0, count);
}

ThreadLimit::ThreadLimit(int threads) : before_(std::exchange(thread_limit, threads)) {}
ThreadLimit::~ThreadLimit() { thread_limit = before_; }

Undelayed::Undelayed() { undelayed = true; }
Undelayed::~Undelayed() { undelayed = false; }

}  // namespace spark
