// thread_pool.cc: the worker threads behind parallel_for.
#include "core/thread_pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/condition.h"
#include "core/parallel_job.h"

namespace spark {
namespace {

// How long a thread watches for what is about to happen before it sleeps. More than the gap between two steps
// of a plan, less than what anybody would notice as load.
constexpr std::chrono::microseconds kWatch{50};

// Grains that are worth waking threads for; less is done before they have come. So many in a moment are worth
// it, too: models of some microseconds, run one after another.
constexpr int64_t kWorthWaking = 4, kWorthWakingTogether = 16;
constexpr std::chrono::microseconds kMoment{500};

// How long after the machine refused a thread (a limit on processes or memory) the next is asked for.
constexpr std::chrono::seconds kUntilNextThread{1};

thread_local bool in_job = false;
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

void work_on(ParallelJob& job, int64_t share) {
  in_job = true;
  job.work(share);
  in_job = false;
}

// Each caller works on a job of its own; idle workers take seats in jobs that have some. Callers never wait
// for each other: locks guard falling asleep, waking and starting threads only.
class Pool {
 public:
  static Pool& get() {
    static Pool* pool = new Pool;  // leaked: workers outlive static destructors
    return *pool;
  }

  void set_threads(int threads) { threads_ = std::max(threads, 0); }
  void set_cores(int cores) { cores_ = std::max(cores, 1); }

  int threads() const {
    const int threads = threads_;
    return threads > 0 ? threads : cores_.load();
  }

  // False when the calling thread does better on its own.
  bool run(int threads, const RangeBody& body, int64_t count, int64_t grain, int64_t grains) {
    if (started_ > 0 && sleepers_ == started_ && !worth_waking(grains)) return false;
    const int at = reserve();
    if (at < 0) return false;
    const Reserved reserved(callers_, at);
    if (started_ < threads - 1) start_threads(threads);
    // Other callers keep a core busy each.
    const int idle = std::max<int>(cores_, threads) - std::popcount(callers_.load());
    const int64_t seats = std::min<int64_t>({threads - 1, started_, idle, (count - 1) / grain});
    if (seats > 0) perform(at, body, count, grain, seats);
    if (const std::exception_ptr failure = jobs_[at].take_failure()) std::rethrow_exception(failure);
    return seats > 0;
  }

 private:
  static uint64_t bit(int at) { return 1ull << at; }

  // Gives a job back, also where opening it throws: the shares of more threads than before are allocated.
  struct Reserved {
    std::atomic<uint64_t>& callers;
    const int at;

    Reserved(std::atomic<uint64_t>& callers, int at) : callers(callers), at(at) {}
    Reserved(const Reserved&) = delete;
    ~Reserved() { callers &= ~bit(at); }
  };

  // A job for the calling thread; -1 when too many threads have one.
  int reserve() {
    uint64_t callers = callers_;
    for (;;) {
      const int at = std::countr_one(callers);
      if (at >= static_cast<int>(jobs_.size())) return -1;
      if (callers_.compare_exchange_weak(callers, callers | bit(at))) return at;
    }
  }

  void perform(int at, const RangeBody& body, int64_t count, int64_t grain, int64_t seats) {
    ParallelJob& job = jobs_[at];
    job.open(body, count, grain, seats);
    open_ |= bit(at);
    wake(seats);
    work_on(job, 0);
    if (job.close()) open_ &= ~bit(at);
    const auto empty = [&job] { return job.empty(); };
    if (empty() || (!crowded() && watch(empty))) return;
    job.wait();
  }

  // More threads are awake than cores can run: whoever watches keeps another from its work.
  bool crowded() const { return std::popcount(callers_.load()) + started_ - sleepers_ > cores_; }

  bool worth_waking(int64_t grains) {
    if (grains >= kWorthWaking) return true;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    if (now - moment_.load() > kMoment) {
      moment_ = now;
      alone_ = 0;
    }
    return (alone_ += grains) >= kWorthWakingTogether;
  }

  void wake(int64_t helpers) {
    if (sleepers_ == 0) return;
    int sleepers;
    {
      const std::lock_guard lock(mutex_);  // who has found no job is asleep by now
      sleepers = sleepers_;
    }
    if (helpers >= sleepers) return wake_.notify_all();
    for (int64_t i = 0; i < helpers; ++i) wake_.notify_one();
  }

  void start_threads(int threads) {
    const std::unique_lock lock(starting_, std::try_to_lock);
    if (!lock) return;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_start_) return;
    try {
      while (started_ < threads - 1) {
        std::thread([this, share = started_ + 1] { work(share); }).detach();
        ++started_;
      }
    } catch (const std::exception&) {
      next_start_ = now + kUntilNextThread;
    }
  }

  [[noreturn]] void work(int64_t share) {
    const auto called = [this] { return open_ != 0; };
    for (;;) {
      if (help(share) || (!crowded() && watch(called))) continue;
      std::unique_lock lock(mutex_);
      ++sleepers_;
      wake_.wait(lock, called);
      --sleepers_;
    }
  }

  // Works on the first job that has a seat, on `share` of it to begin with; false when none has.
  bool help(int64_t share) {
    for (uint64_t open = open_; open != 0; open &= open - 1) {
      const int at = std::countr_zero(open);
      ParallelJob& job = jobs_[at];
      const ParallelJob::Seat seat = job.join();
      if (seat == ParallelJob::Seat::kNone) continue;
      if (seat == ParallelJob::Seat::kLast) open_ &= ~bit(at);  // its caller waits for leave()
      work_on(job, share);
      job.leave();
      return true;
    }
    return false;
  }

  std::array<ParallelJob, 64> jobs_;
  std::atomic<int> cores_{static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  std::atomic<int> threads_ = 0;  // 0: one per core
  std::atomic<int> started_ = 0;
  std::atomic<std::chrono::steady_clock::duration> moment_{};  // when it began
  std::atomic<int64_t> alone_ = 0;                             // grains done in it while all slept
  std::mutex starting_;
  std::chrono::steady_clock::time_point next_start_{};  // no thread is started before; guarded by starting_
  std::mutex mutex_;                                    // held on the way to sleep and to wake
  Condition wake_;
  alignas(64) std::atomic<int> sleepers_ = 0;
  alignas(64) std::atomic<uint64_t> callers_ = 0;  // jobs that have a caller
  alignas(64) std::atomic<uint64_t> open_ = 0;     // jobs that may have seats; watched by idle workers
};

}  // namespace

void set_thread_count(int threads) { Pool::get().set_threads(threads); }
void set_core_count(int cores) { Pool::get().set_cores(cores); }
int thread_count() { return thread_limit > 0 ? thread_limit : Pool::get().threads(); }

void parallel_for(int64_t count, int64_t grain, RangeBody body, int64_t grains) {
  if (count <= 0) return;
  const int threads = thread_count();
  if (count <= grain || threads == 1 || in_job) return body(0, count);
  const int64_t work = std::max((count + grain - 1) / grain, grains);
  if (!Pool::get().run(threads, body, count, grain, work)) body(0, count);
}

ThreadLimit::ThreadLimit(int threads) : before_(std::exchange(thread_limit, threads)) {}
ThreadLimit::~ThreadLimit() { thread_limit = before_; }

}  // namespace spark
