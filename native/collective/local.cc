// local.cc: ranks that share an address space: they read from and add into each other's memory between two
// meetings.
#include "collective/local.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/condition.h"
#include "core/error.h"

namespace spark::collective {
namespace {

using Clock = std::chrono::steady_clock;

// Bytes that wait for one receiver from one sender before the sender waits, too.
constexpr size_t kMailboxBytes = size_t{64} << 20;
constexpr size_t kFloatsPerCacheLine = 16;

// What a rank brings to a collective.
struct Call {
  const char* op;
  size_t size;
  int root;
  const void* in;
  void* out;
};

struct Mailbox {
  std::deque<std::vector<char>> messages;
  size_t bytes = 0;
};

// What the ranks of one epoch share.
class World {
 public:
  World(uint64_t epoch, int size)
      : epoch(epoch), size(size), ranks_(size), boxes_(static_cast<size_t>(size) * size) {}

  const uint64_t epoch;
  const int size;

  void enter(int rank) {
    const std::lock_guard lock(mutex_);
    if (ranks_[rank].present)
      throw Error("ERR_CONFLICT", message("rank ", rank, " of epoch ", epoch, " is taken"));
    ranks_[rank].present = true;
  }

  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    ranks_[rank].left = true;
    changed_.notify_all();
  }

  // Whether all ranks that came have left.
  bool deserted() const {
    const std::lock_guard lock(mutex_);
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return rank.left || !rank.present; });
  }

  void end(const char* code, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    end_locked(code, reason);
  }

  // Waits until all ranks have met as often as this one.
  void meet(int rank, const Call& call, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    throw_if_over();
    Rank& self = ranks_[rank];
    self.call = call;
    const uint64_t meeting = ++self.meetings;
    changed_.notify_all();
    const auto ready = [&] { return all_met(meeting) || over_ || someone_left(meeting); };
    const bool in_time = changed_.wait_until(lock, Clock::now() + timeout, ready);
    // Nobody comes to a meeting after the end, so either all ranks see that all have met, or none does.
    if (all_met(meeting)) return;
    if (!over_) {
      const std::string missing = missing_ranks(meeting);
      end_locked("ERR_IO",
                 in_time ? message(call.op, ": ", missing, " left")
                         : message(call.op, ": ", missing, " did not come within ", timeout.count(), " ms"));
    }
    throw_if_over();
  }

  // Ends a collective: all ranks are in it and none waits for anybody else, so this takes no longer than
  // their work. Others may use this rank's memory until then, whatever happens.
  void part(int rank) {
    std::unique_lock lock(mutex_);
    const uint64_t meeting = ++ranks_[rank].meetings;
    changed_.notify_all();
    changed_.wait(lock, [&] { return all_met(meeting); });
  }

  // Between a meeting and the parting.
  const Call& call_of(int rank) const { return ranks_[rank].call; }

  void put(int from, int to, const void* bytes, size_t count, std::chrono::milliseconds timeout) {
    std::vector<char> copy(static_cast<const char*>(bytes), static_cast<const char*>(bytes) + count);
    std::unique_lock lock(mutex_);
    Mailbox& box = boxes_[from * size + to];
    const auto fits = [&] { return box.messages.empty() || box.bytes + count <= kMailboxBytes; };
    await(lock, to, timeout, "send", fits);
    box.bytes += count;
    box.messages.push_back(std::move(copy));
    changed_.notify_all();
  }

  void take(int from, int to, void* bytes, size_t count, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    Mailbox& box = boxes_[from * size + to];
    await(lock, from, timeout, "recv", [&] { return !box.messages.empty(); });
    const std::vector<char> copy = std::move(box.messages.front());
    box.messages.pop_front();
    box.bytes -= copy.size();
    changed_.notify_all();
    lock.unlock();
    if (copy.size() != count) {
      throw Error("ERR_SHAPE", message("recv: the message of rank ", from, " has ", copy.size(),
                                       " bytes; there is space for ", count));
    }
    if (count > 0) std::memcpy(bytes, copy.data(), count);
  }

 private:
  struct Rank {
    bool present = false, left = false;
    uint64_t meetings = 0;
    Call call{};
  };
  struct End {
    const char* code;
    std::string reason;
  };

  bool all_met(uint64_t meeting) const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [&](const Rank& rank) { return rank.meetings >= meeting; });
  }

  bool someone_left(uint64_t meeting) const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [&](const Rank& rank) { return rank.left && rank.meetings < meeting; });
  }

  std::string missing_ranks(uint64_t meeting) const {
    std::string names;
    for (int rank = 0; rank < size; ++rank) {
      if (ranks_[rank].meetings < meeting) names += message(names.empty() ? "rank " : ", rank ", rank);
    }
    return names;
  }

  template <typename Ready>
  void await(std::unique_lock<std::mutex>& lock, int other, std::chrono::milliseconds timeout,
             const char* what, Ready ready) {
    const bool in_time = changed_.wait_until(lock, Clock::now() + timeout,
                                             [&] { return over_ || ready() || ranks_[other].left; });
    throw_if_over();
    if (ready()) return;
    throw Error("ERR_IO",
                in_time ? message(what, ": rank ", other, " left")
                        : message(what, ": rank ", other, " did not answer within ", timeout.count(), " ms"));
  }

  void throw_if_over() const {
    if (over_) throw Error(over_->code, over_->reason);
  }

  void end_locked(const char* code, const std::string& reason) {
    if (!over_) over_ = End{code, reason};
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  Condition changed_;
  std::optional<End> over_;
  std::vector<Rank> ranks_;
  std::vector<Mailbox> boxes_;
};

// The world of each name that anybody is in.
std::shared_ptr<World> world_of(const Seat& seat) {
  static std::mutex mutex;
  static auto& worlds = *new std::map<std::string, std::weak_ptr<World>>;
  const std::lock_guard lock(mutex);
  std::erase_if(worlds, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<World>& entry = worlds[seat.name];
  std::shared_ptr<World> world = entry.lock();
  if (world && world->deserted()) world = nullptr;
  if (world && world->epoch > seat.epoch) {
    throw Error("ERR_CONFLICT", message("epoch ", seat.epoch, " of '", seat.name, "' is over: epoch ",
                                        world->epoch, " has begun"));
  }
  if (world && world->epoch == seat.epoch) {
    if (world->size != seat.world) {
      throw Error("ERR_CONFLICT", message("world is ", seat.world, ", but others joined epoch ", seat.epoch,
                                          " of '", seat.name, "' as a world of ", world->size));
    }
    return world;
  }
  if (world) {
    world->end("ERR_CONFLICT", message("epoch ", world->epoch, " of '", seat.name, "' is over: rank ",
                                       seat.rank, " joined epoch ", seat.epoch));
  }
  world = std::make_shared<World>(seat.epoch, seat.world);
  entry = world;
  return world;
}

class LocalCommunicator : public Communicator {
 public:
  explicit LocalCommunicator(const Seat& seat)
      : world_(world_of(seat)), rank_(seat.rank), timeout_(seat.timeout) {
    world_->enter(rank_);
  }
  ~LocalCommunicator() override { world_->leave(rank_); }
  void leave() override { world_->leave(rank_); }

  int rank() const override { return rank_; }
  int world() const override { return world_->size; }

  void open() override {
    const std::lock_guard lock(collective_);
    world_->meet(rank_, {"join", 0, 0, nullptr, nullptr}, timeout_);
  }
  void barrier() override {
    const std::lock_guard lock(collective_);
    meet({"barrier", 0, 0, nullptr, nullptr});
    world_->part(rank_);
  }

  void all_reduce(float* values, size_t count) override {
    const std::lock_guard lock(collective_);
    meet({"allReduce", count, 0, values, values});
    // Each rank adds a part of the elements, of all ranks in their order, and stores the sums with all.
    const size_t size = world_->size;
    const size_t lines = (count + kFloatsPerCacheLine - 1) / kFloatsPerCacheLine;
    const size_t begin = std::min(count, lines * rank_ / size * kFloatsPerCacheLine);
    const size_t end = std::min(count, lines * (rank_ + 1) / size * kFloatsPerCacheLine);
    auto* sums = static_cast<float*>(world_->call_of(0).out);
    for (size_t rank = 1; rank < size; ++rank) {
      const auto* terms = static_cast<const float*>(world_->call_of(static_cast<int>(rank)).in);
      for (size_t i = begin; i < end; ++i) sums[i] += terms[i];
    }
    for (size_t rank = 1; rank < size && begin < end; ++rank) {
      auto* to = static_cast<float*>(world_->call_of(static_cast<int>(rank)).out);
      std::memcpy(to + begin, sums + begin, (end - begin) * sizeof(float));
    }
    world_->part(rank_);
  }

  void all_gather(const void* bytes, size_t size, void* all) override {
    const std::lock_guard lock(collective_);
    meet({"allGather", size, 0, bytes, all});
    for (int rank = 0; rank < world_->size && size > 0; ++rank) {
      std::memmove(static_cast<char*>(all) + rank * size, world_->call_of(rank).in, size);
    }
    world_->part(rank_);
  }

  void broadcast(void* bytes, size_t size, int root) override {
    const std::lock_guard lock(collective_);
    meet({"broadcast", size, root, bytes, bytes});
    if (rank_ != root && size > 0) std::memcpy(bytes, world_->call_of(root).in, size);
    world_->part(rank_);
  }

  void send(int to, const void* bytes, size_t size) override {
    world_->put(rank_, to, bytes, size, timeout_);
  }
  void recv(int from, void* bytes, size_t size) override { world_->take(from, rank_, bytes, size, timeout_); }

  void abort(const std::string& reason) override { world_->end("ERR_IO", reason); }

 private:
  // Meets all ranks and compares what they are about to do, which is the same comparison on each.
  void meet(const Call& call) {
    world_->meet(rank_, call, timeout_);
    const Call& first = world_->call_of(0);
    for (int rank = 1; rank < world_->size; ++rank) {
      const Call& other = world_->call_of(rank);
      if (std::strcmp(other.op, first.op) == 0 && other.size == first.size && other.root == first.root)
        continue;
      const std::string reason =
          message("rank 0 called ", first.op, " of ", first.size, " (root ", first.root, "), rank ", rank,
                  " ", other.op, " of ", other.size, " (root ", other.root, ")");
      world_->part(rank_);
      world_->end("ERR_SHAPE", reason);
      throw Error("ERR_SHAPE", reason);
    }
  }

  const std::shared_ptr<World> world_;
  const int rank_;
  const std::chrono::milliseconds timeout_;
  std::mutex collective_;
};

}  // namespace

std::shared_ptr<Communicator> join_local(const Seat& seat) {
  return std::make_shared<LocalCommunicator>(seat);
}

}  // namespace spark::collective
