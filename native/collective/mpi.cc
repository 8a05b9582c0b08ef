// mpi.cc: ranks over Open MPI. All waits are polls of ours: MPI's own neither end nor sleep.
#include "collective/mpi.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "collective/mpi_library.h"
#include "core/error.h"

namespace spark::collective {
namespace {

using Clock = std::chrono::steady_clock;
using mpi::Mpi;

enum Tag { kMessage = 1, kMeeting = 2, kNotice = 3 };

// Polls without a pause: some microseconds, as long as a short message takes. Then others may run in between,
// and after a time the thread sleeps.
constexpr int kEagerPolls = 100;
constexpr std::chrono::milliseconds kAwake{2};
constexpr std::chrono::microseconds kNap{50};

constexpr size_t kMaxCount = std::numeric_limits<int>::max();
constexpr size_t kFloatsAtOnce = size_t{1} << 28;
constexpr size_t kBytesAtOnce = size_t{1} << 30;

// What a rank is about to do, told to all others before it does it: MPI does not notice when they differ.
struct Meeting {
  uint64_t epoch, size;
  int32_t root;
  char op[12];
};

// What a rank tells the others at any time.
struct Notice {
  enum Kind : int32_t { kLeft, kAborted, kShape, kConflict } kind;
  int32_t rank;
  char text[1000];
};

const char* code_of(Notice::Kind kind) {
  return kind == Notice::kShape ? "ERR_SHAPE" : kind == Notice::kConflict ? "ERR_CONFLICT" : "ERR_IO";
}

std::atomic<bool> taken{false};

class MpiCommunicator : public Communicator {
 public:
  explicit MpiCommunicator(const MpiSeat& seat)
      : seat_(seat), left_(seat.world), theirs_(seat.world), requests_(2 * seat.world) {}

  int rank() const override { return seat_.rank; }
  int world() const override { return seat_.world; }

  void open() override {
    const std::lock_guard lock(collective_);
    mpi_ = &Mpi::get();
    int flag = 0;
    mpi_->MPI_Initialized(&flag);
    if (flag) throw Error("ERR_CONFLICT", "MPI runs in this process already, and cannot start twice");
    mpi_->check(mpi_->MPI_Init_thread(nullptr, nullptr, mpi::kThreadMultiple, &flag), "MPI_Init_thread");
    if (flag < mpi::kThreadMultiple)
      throw Error("ERR_UNSUPPORTED", "this Open MPI does not take calls of several threads");
    mpi_->MPI_Comm_set_errhandler(mpi_->world, mpi_->errors_return);
    int rank = 0, size = 0;
    mpi_->MPI_Comm_rank(mpi_->world, &rank);
    mpi_->MPI_Comm_size(mpi_->world, &size);
    if (rank != seat_.rank || size != seat_.world) {
      throw Error("ERR_CONFLICT", message("mpirun started this process as rank ", rank, " of ", size,
                                          "; it joins as rank ", seat_.rank, " of ", seat_.world));
    }
    listen();
    ready_ = true;
    meet("join", 0, 0);
  }

  void barrier() override {
    const std::lock_guard lock(collective_);
    meet("barrier", 0, 0);
  }

  void all_reduce(float* values, size_t count) override {
    const std::lock_guard lock(collective_);
    meet("allReduce", count, 0);
    for (size_t i = 0; i < count; i += kFloatsAtOnce) {
      const auto part = static_cast<int>(std::min(kFloatsAtOnce, count - i));
      start([&](mpi::Request* request) {
        return mpi_->MPI_Iallreduce(mpi::kInPlace, values + i, part, mpi_->real, mpi_->sum, mpi_->world,
                                    request);
      });
    }
  }

  void all_gather(const void* bytes, size_t size, void* all) override {
    const std::lock_guard lock(collective_);
    expect_count("allGather", size);
    meet("allGather", size, 0);
    const bool in_place = bytes == static_cast<char*>(all) + size * seat_.rank;
    start([&](mpi::Request* request) {
      const auto count = static_cast<int>(size);
      return mpi_->MPI_Iallgather(in_place ? mpi::kInPlace : bytes, count, mpi_->byte, all, count, mpi_->byte,
                                  mpi_->world, request);
    });
  }

  void broadcast(void* bytes, size_t size, int root) override {
    const std::lock_guard lock(collective_);
    meet("broadcast", size, root);
    for (size_t i = 0; i < size; i += kBytesAtOnce) {
      const auto part = static_cast<int>(std::min(kBytesAtOnce, size - i));
      start([&](mpi::Request* request) {
        return mpi_->MPI_Ibcast(static_cast<char*>(bytes) + i, part, mpi_->byte, root, mpi_->world, request);
      });
    }
  }

  void send(int to, const void* bytes, size_t size) override {
    const std::lock_guard lock(sending_);
    expect_open();
    expect_count("send", size);
    mpi::Request request;
    mpi_->check(
        mpi_->MPI_Isend(bytes, static_cast<int>(size), mpi_->byte, to, kMessage, mpi_->world, &request),
        "send");
    if (poll([&] { return test(&request) || left_[to]; }, true) && !request_left(to, request)) return;
    // MPI may still read the message, so nothing goes on after this.
    end(Notice::kAborted,
        left_[to] ? message("send: rank ", to, " left")
                  : message("send: rank ", to, " did not take it within ", seat_.timeout.count(), " ms"));
    throw_over();
  }

  void recv(int from, void* bytes, size_t size) override {
    const std::lock_guard lock(receiving_);
    expect_open();
    expect_count("recv", size);
    int found = 0, count = 0;
    mpi::Message incoming;
    mpi::Status status{};
    const auto probe = [&] {
      mpi_->check(mpi_->MPI_Improbe(from, kMessage, mpi_->world, &found, &incoming, &status), "recv");
      return found != 0;
    };
    const bool in_time = poll([&] { return probe() || left_[from]; }, true);
    if (!found && !probe()) {
      if (is_over_) throw_over();
      throw Error("ERR_IO", in_time ? message("recv: rank ", from, " left")
                                    : message("recv: rank ", from, " did not answer within ",
                                              seat_.timeout.count(), " ms"));
    }
    mpi_->MPI_Get_count(&status, mpi_->byte, &count);
    std::vector<char> dropped;
    const bool fits = static_cast<size_t>(count) == size;
    if (!fits) dropped.resize(count);
    start([&](mpi::Request* request) {
      return mpi_->MPI_Imrecv(fits ? bytes : dropped.data(), count, mpi_->byte, &incoming, request);
    });
    if (!fits) {
      throw Error("ERR_SHAPE", message("recv: the message of rank ", from, " has ", count,
                                       " bytes; there is space for ", size));
    }
  }

  void abort(const std::string& reason) override { end(Notice::kAborted, reason); }

  // A world that failed is not finalized, which could wait for ever: it ends with its processes.
  void leave() override {
    const std::lock_guard lock(collective_);
    if (!ready_ || is_over_) return;
    tell(Notice::kLeft, "");
    {
      const std::lock_guard hearing(hearing_);
      ready_ = false;
      mpi_->MPI_Cancel(&heard_request_);
      int done = 0;
      while (!done && mpi_->MPI_Test(&heard_request_, &done, nullptr) == mpi::kSuccess) sched_yield();
    }
    mpi_->MPI_Finalize();
  }

 private:
  static void expect_count(const char* op, size_t size) {
    if (size > kMaxCount)
      throw Error("ERR_RANGE", message(op, ": ", size, " bytes; MPI takes at most ", kMaxCount, " at once"));
  }

  void expect_open() const {
    if (is_over_) throw_over();
    if (!ready_) throw Error("ERR_DISPOSED", message("rank ", seat_.rank, " has left its communicator"));
  }

  [[noreturn]] void throw_over() const {
    const std::lock_guard lock(over_mutex_);
    throw Error(code_of(over_->kind), over_->text);
  }

  bool request_left(int to, mpi::Request& request) { return left_[to] && !test(&request); }

  bool test(mpi::Request* request) const {
    int done = 0;
    mpi_->check(mpi_->MPI_Test(request, &done, nullptr), "MPI_Test");
    return done != 0;
  }

  // Polls until `done()`, or the time is up, or the communicator over where that counts; whether it is done.
  template <typename Done>
  bool poll(Done done, bool heeds_end) {
    for (int i = 0; i < kEagerPolls; ++i) {
      if (done()) return true;
    }
    for (const auto begin = Clock::now();;) {
      if (done()) return true;
      hear();
      if (heeds_end && is_over_) return false;
      const auto waited = Clock::now() - begin;
      if (waited > seat_.timeout) return false;
      if (waited < kAwake) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(kNap);
      }
    }
  }

  // Tells all ranks what this one is about to do, and waits until all have.
  void meet(const char* op, size_t size, int root) {
    expect_open();
    mine_ = Meeting{seat_.epoch, size, root, {}};
    std::strncpy(mine_.op, op, sizeof mine_.op - 1);
    const int world = seat_.world;
    for (int other = 0; other < world; ++other) {
      if (other == seat_.rank) continue;
      mpi_->check(mpi_->MPI_Irecv(&theirs_[other], sizeof(Meeting), mpi_->byte, other, kMeeting, mpi_->world,
                                  &requests_[other]),
                  op);
      mpi_->check(mpi_->MPI_Isend(&mine_, sizeof(Meeting), mpi_->byte, other, kMeeting, mpi_->world,
                                  &requests_[world + other]),
                  op);
    }
    std::vector<bool> met(2 * world);
    met[seat_.rank] = met[world + seat_.rank] = true;
    const auto all_met = [&] {
      bool all = true;
      for (int i = 0; i < 2 * world; ++i) {
        if (!met[i]) met[i] = test(&requests_[i]);
        all = all && met[i];
      }
      return all;
    };
    const auto missing_left = [&] {
      for (int other = 0; other < world; ++other) {
        if (!met[other] && left_[other]) return true;
      }
      return false;
    };
    const bool in_time = poll([&] { return all_met() || missing_left(); }, true);
    if (!all_met()) {
      std::string missing;
      for (int other = 0; other < world; ++other) {
        if (!met[other]) missing += message(missing.empty() ? "rank " : ", rank ", other);
      }
      end(Notice::kAborted,
          in_time ? message(op, ": ", missing, " left")
                  : message(op, ": ", missing, " did not come within ", seat_.timeout.count(), " ms"));
      throw_over();
    }
    compare();
  }

  void compare() {
    for (int other = 0; other < seat_.world; ++other) {
      if (other == seat_.rank) continue;
      const Meeting& theirs = theirs_[other];
      if (theirs.epoch != mine_.epoch) {
        end(Notice::kConflict, message("rank ", other, " joins epoch ", theirs.epoch, ", rank ", seat_.rank,
                                       " epoch ", mine_.epoch));
        throw_over();
      }
      if (std::memcmp(&theirs, &mine_, sizeof mine_) != 0) {
        end(Notice::kShape,
            message("rank ", other, " called ", theirs.op, " of ", theirs.size, " (root ", theirs.root,
                    "), rank ", seat_.rank, " ", mine_.op, " of ", mine_.size, " (root ", mine_.root, ")"));
        throw_over();
      }
    }
  }

  // Starts what all ranks have met for, or a message that is there, and waits for it: also once somebody
  // aborted, since MPI works on the memory until then.
  template <typename Begin>
  void start(Begin begin) {
    mpi::Request request;
    try {
      mpi_->check(begin(&request), "MPI");
      if (poll([&] { return test(&request); }, false)) return;
      end(Notice::kAborted, message("MPI did not end within ", seat_.timeout.count(), " ms"));
    } catch (const Error& error) {
      end(Notice::kAborted, error.what());
    }
    throw_over();
  }

  // --- Notices ---

  void listen() {
    mpi_->check(mpi_->MPI_Irecv(&heard_, sizeof heard_, mpi_->byte, mpi::kAnySource, kNotice, mpi_->world,
                                &heard_request_),
                "MPI_Irecv");
  }

  void hear() {
    const std::unique_lock lock(hearing_, std::try_to_lock);
    if (!lock.owns_lock() || !ready_ || !test(&heard_request_)) return;
    heard_.text[sizeof heard_.text - 1] = 0;
    if (heard_.kind == Notice::kLeft && heard_.rank >= 0 && heard_.rank < seat_.world) {
      left_[heard_.rank] = true;
    } else {
      over(heard_);
    }
    listen();
  }

  // Whether nothing was over before.
  bool over(const Notice& notice) {
    const std::lock_guard lock(over_mutex_);
    if (over_) return false;
    over_ = notice;
    is_over_ = true;
    return true;
  }

  void end(Notice::Kind kind, const std::string& reason) {
    Notice notice{kind, seat_.rank, {}};
    std::strncpy(notice.text, reason.c_str(), sizeof notice.text - 1);
    if (over(notice) && ready_) tell(kind, reason);
  }

  void tell(Notice::Kind kind, const std::string& text) {
    const std::lock_guard lock(telling_);
    Notice& notice = told_.emplace_back(Notice{kind, seat_.rank, {}});
    std::strncpy(notice.text, text.c_str(), sizeof notice.text - 1);
    for (int other = 0; other < seat_.world; ++other) {
      mpi::Request request;
      int done = 0;
      if (other == seat_.rank || mpi_->MPI_Isend(&notice, sizeof notice, mpi_->byte, other, kNotice,
                                                 mpi_->world, &request) != mpi::kSuccess)
        continue;
      // So short that it goes at once, unless the other is not there.
      for (int i = 0; i < kEagerPolls && !done; ++i) mpi_->MPI_Test(&request, &done, nullptr);
    }
  }

  const MpiSeat seat_;
  const Mpi* mpi_ = nullptr;
  std::atomic<bool> ready_{false};
  std::mutex collective_, sending_, receiving_, telling_;

  mutable std::mutex over_mutex_;
  std::atomic<bool> is_over_{false};
  std::optional<Notice> over_;
  std::deque<std::atomic<bool>> left_;

  // MPI may write to all of these as long as it runs.
  std::mutex hearing_;
  Notice heard_{};
  mpi::Request heard_request_ = nullptr;
  std::deque<Notice> told_;
  Meeting mine_{};
  std::vector<Meeting> theirs_;
  std::vector<mpi::Request> requests_;
};

}  // namespace

std::shared_ptr<Communicator> join_mpi(const MpiSeat& seat) {
  if (taken.exchange(true)) {
    throw Error("ERR_CONFLICT",
                "this process has joined an MPI world already, and MPI starts once in a process: launch a "
                "process for each epoch");
  }
  // Never destroyed.
  static auto& world = *new std::shared_ptr<Communicator>;
  world = std::make_shared<MpiCommunicator>(seat);
  return world;
}

}  // namespace spark::collective
