// nccl.cc: ranks over NCCL. Its communicators are non-blocking, so that all waits are polls of ours, which
// end.
#include "backend/cuda/nccl/nccl.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/memory.h"
#include "backend/cuda/runtime/stream.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr CUresult kNotReady = static_cast<CUresult>(600);
constexpr unsigned kNonBlockingStream = 1;
constexpr int kEagerPolls = 2000;
constexpr std::chrono::microseconds kNap{50};
constexpr size_t kMaxMessage = size_t{4} << 30;

// One of NCCL's communicators: it does one thing after the other. Messages to higher ranks have one, those to
// lower ranks another, so that two ranks that send to each other do not wait for each other.
struct Channel {
  std::mutex issuing;  // until NCCL has taken an operation
  std::mutex calls;    // one call
  NcclComm comm = nullptr;
};

// What a rank is about to do.
struct Meeting {
  uint64_t epoch, size;
  int32_t root;
  char op[12];
};

// Pinned memory. What NCCL may still use after a failure is not given back.
class Staging {
 public:
  Staging(Device& device, size_t bytes) : device_(device), piece_(device.staging().take(bytes)) {}
  ~Staging() {
    if (std::uncaught_exceptions() == 0) device_.staging().give(piece_);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  char* data() const { return static_cast<char*>(piece_.data); }

 private:
  Device& device_;
  const Pool::Piece piece_;
};

class NcclCommunicator : public StreamCommunicator {
 public:
  explicit NcclCommunicator(const NcclSeat& seat) : seat_(seat) {}
  ~NcclCommunicator() override {
    abort("the communicator is gone");
    destroy_streams();
  }

  int rank() const override { return seat_.rank; }
  int world() const override { return seat_.world; }

  void open() override {
    const std::lock_guard lock(collective_);
    nccl_ = &Nccl::get();
    device_ = &Device::open(seat_.ordinal);
    const DeviceScope scope(*device_);
    for (CUstream& stream : streams_) {
      device_->check(device_->driver.cuStreamCreate(&stream, kNonBlockingStream), "cuStreamCreate");
    }
    for (size_t i = 0; i < seat_.secret.size(); ++i) {
      NcclConfig config;
      Channel& channel = channels_[i];
      issue(channel, "join", [&] {
        return nccl_->ncclCommInitRankConfig(&channel.comm, seat_.world, seat_.secret[i], seat_.rank,
                                             &config);
      });
    }
    meet("join", 0, 0);
  }

  void barrier() override {
    const std::lock_guard lock(collective_);
    meet("barrier", 0, 0);
  }

  void all_reduce(float* values, size_t count) override {
    const std::lock_guard lock(collective_);
    meet("allReduce", count, 0);
    pass("allReduce", values, values, count * sizeof(float), count * sizeof(float), [&](char* data) {
      return nccl_->ncclAllReduce(data, data, count, kNcclFloat32, kNcclSum, channels_[0].comm, streams_[0]);
    });
  }

  int ordinal() const override { return seat_.ordinal; }

  void run(const std::function<void()>& enqueue) override {
    const std::lock_guard lock(collective_);
    throw_if_over();
    enqueue();
    await(channels_[0], "the sums of a plan", device_->stream().handle());
  }

  // run() has the lock.
  void enqueue_all_reduce(const float* x, float* y, size_t count, bool compares) override {
    if (compares) meet("allReduce", count, 0);
    if (count == 0) return;
    const CUstream stream = device_->stream().handle();
    issue(channels_[0], "allReduce", [&] {
      return nccl_->ncclAllReduce(x, y, count, kNcclFloat32, kNcclSum, channels_[0].comm, stream);
    });
  }

  void all_gather(const void* bytes, size_t size, void* all) override {
    const std::lock_guard lock(collective_);
    meet("allGather", size, 0);
    const size_t own = size * seat_.rank;
    std::vector<char> filled(size * seat_.world);
    if (size > 0) std::memcpy(filled.data() + own, bytes, size);
    pass("allGather", filled.data(), all, filled.size(), filled.size(), [&](char* data) {
      return nccl_->ncclAllGather(data + own, data, size, kNcclUint8, channels_[0].comm, streams_[0]);
    });
  }

  void broadcast(void* bytes, size_t size, int root) override {
    const std::lock_guard lock(collective_);
    meet("broadcast", size, root);
    pass("broadcast", bytes, bytes, size, size, [&](char* data) {
      return nccl_->ncclBroadcast(data, data, size, kNcclUint8, root, channels_[0].comm, streams_[0]);
    });
  }

  // A message follows its length: NCCL does not notice when lengths differ.
  void send(int to, const void* bytes, size_t size) override {
    const std::lock_guard lock(sending_);
    uint64_t length = size;
    const auto part = [&](void* data, size_t count) {
      transfer("send", to > seat_.rank, streams_[1], data, nullptr, count, [&](char* staged, NcclComm comm) {
        return nccl_->ncclSend(staged, count, kNcclUint8, to, comm, streams_[1]);
      });
    };
    part(&length, sizeof length);
    part(const_cast<void*>(bytes), size);
  }

  void recv(int from, void* bytes, size_t size) override {
    const std::lock_guard lock(receiving_);
    uint64_t length = 0;
    const auto part = [&](void* data, size_t count) {
      transfer("recv", from < seat_.rank, streams_[2], nullptr, data, count,
               [&](char* staged, NcclComm comm) {
                 return nccl_->ncclRecv(staged, count, kNcclUint8, from, comm, streams_[2]);
               });
    };
    part(&length, sizeof length);
    if (length > kMaxMessage) fail("ERR_RANGE", message("rank ", from, " sends ", length, " bytes"));
    if (length == size) return part(bytes, size);
    std::vector<char> dropped(length);
    part(dropped.data(), length);
    throw Error("ERR_SHAPE", message("recv: the message of rank ", from, " has ", length,
                                     " bytes; there is space for ", size));
  }

  void abort(const std::string& reason) override { end("ERR_IO", reason); }

  // All leave together: a rank that ends its communicator breaks what others still do.
  void leave() override {
    const std::lock_guard lock(collective_);
    try {
      if (device_) meet("leave", 0, 0);
    } catch (const Error&) {
      // The others are gone.
    }
    abort(message("rank ", seat_.rank, " has left its communicator"));
  }

 private:
  struct End {
    const char* code;
    std::string reason;
  };

  void destroy_streams() noexcept {
    if (!device_) return;
    try {
      const DeviceScope scope(*device_);
      for (CUstream stream : streams_) {
        if (stream) device_->driver.cuStreamDestroy(stream);
      }
    } catch (const Error&) {
      // The context is closed, and its streams with it.
    }
  }

  void throw_if_over() const {
    if (!is_over_) return;
    const std::lock_guard lock(over_mutex_);
    throw Error(over_->code, over_->reason);
  }

  void end(const char* code, const std::string& reason) {
    {
      const std::lock_guard lock(over_mutex_);
      if (over_) return;
      over_ = End{code, reason};
      is_over_ = true;
    }
    for (Channel& channel : channels_) {
      const std::lock_guard lock(channel.calls);
      if (channel.comm) nccl_->ncclCommAbort(channel.comm);
      channel.comm = nullptr;
    }
  }

  [[noreturn]] void fail(const char* code, const std::string& reason) {
    end(code, reason);
    const std::lock_guard lock(over_mutex_);
    throw Error(over_->code, over_->reason);
  }

  // Polls until `done()`; what fails, or takes too long, ends the communicator.
  template <typename Done>
  void poll(const char* doing, Done done) {
    const auto begin = Clock::now();
    try {
      for (int64_t i = 0; !done(); ++i) {
        throw_if_over();
        if (i < kEagerPolls) continue;
        if (Clock::now() - begin > seat_.timeout) {
          throw Error("ERR_IO",
                      message(doing, ": other ranks did not come within ", seat_.timeout.count(), " ms"));
        }
        std::this_thread::sleep_for(kNap);
      }
    } catch (const Error& error) {
      fail(error.code, error.what());
    }
  }

  // Whether NCCL has taken what was issued.
  bool is_taken(Channel& channel, const char* doing) {
    const std::lock_guard lock(channel.calls);
    if (!channel.comm) return false;
    NcclResult state = kNcclSuccess;
    nccl_->check(nccl_->ncclCommGetAsyncError(channel.comm, &state), doing);
    nccl_->check(state, doing);
    return state != kNcclInProgress;
  }

  template <typename Call>
  void issue(Channel& channel, const char* doing, Call call) {
    const std::lock_guard issuing(channel.issuing);
    NcclResult issued = kNcclSuccess;
    {
      const std::lock_guard lock(channel.calls);
      throw_if_over();
      issued = call();
    }
    poll(doing, [&] {
      nccl_->check(issued, doing);
      return is_taken(channel, doing);
    });
  }

  // Until the GPU is done. A peer that is gone shows in the channel, also where NCCL's kernels end for that
  // reason.
  void await(Channel& channel, const char* doing, CUstream stream) {
    poll(doing, [&] {
      const CUresult result = device_->driver.cuStreamQuery(stream);
      if (result != kNotReady) device_->check(result, doing);
      return is_taken(channel, doing) && result != kNotReady;
    });
  }

  // Copies `in` to pinned memory, works there, and copies it to `out`.
  template <typename Call>
  void pass(const char* doing, const void* in, void* out, size_t size, size_t copied, Call call) {
    if (size == 0) return;
    const DeviceScope scope(*device_);
    const Staging staging(*device_, size);
    std::memcpy(staging.data(), in, copied);
    issue(channels_[0], doing, [&] { return call(staging.data()); });
    await(channels_[0], doing, streams_[0]);
    std::memcpy(out, staging.data(), size);
  }

  template <typename Call>
  void transfer(const char* doing, bool upwards, CUstream stream, const void* in, void* out, size_t size,
                Call call) {
    throw_if_over();
    if (size == 0) return;
    const DeviceScope scope(*device_);
    const Staging staging(*device_, size);
    if (in) std::memcpy(staging.data(), in, size);
    Channel& channel = channels_[upwards ? 1 : 2];
    issue(channel, doing, [&] { return call(staging.data(), channel.comm); });
    await(channel, doing, stream);
    if (out) std::memcpy(out, staging.data(), size);
  }

  // Compares what all ranks are about to do.
  void meet(const char* op, size_t size, int root) {
    throw_if_over();
    Meeting mine{seat_.epoch, size, root, {}};
    std::strncpy(mine.op, op, sizeof mine.op - 1);
    std::vector<Meeting> all(seat_.world);
    all[seat_.rank] = mine;
    pass(op, all.data(), all.data(), all.size() * sizeof mine, all.size() * sizeof mine, [&](char* data) {
      return nccl_->ncclAllGather(data + seat_.rank * sizeof mine, data, sizeof mine, kNcclUint8,
                                  channels_[0].comm, streams_[0]);
    });
    for (int other = 0; other < seat_.world; ++other) {
      const Meeting& theirs = all[other];
      if (std::memcmp(&theirs, &mine, sizeof mine) == 0) continue;
      const bool epochs = theirs.epoch != mine.epoch;
      fail(epochs ? "ERR_CONFLICT" : "ERR_SHAPE",
           epochs
               ? message("rank ", other, " joins epoch ", theirs.epoch, ", rank ", seat_.rank, " epoch ",
                         mine.epoch)
               : message("rank ", other, " called ", theirs.op, " of ", theirs.size, " (root ", theirs.root,
                         "), rank ", seat_.rank, " ", mine.op, " of ", mine.size, " (root ", mine.root, ")"));
    }
  }

  const NcclSeat seat_;
  const Nccl* nccl_ = nullptr;
  Device* device_ = nullptr;
  CUstream streams_[3] = {};  // of collectives, of messages that are sent, of those that are received
  Channel channels_[3];
  std::mutex collective_, sending_, receiving_;
  mutable std::mutex over_mutex_;
  std::atomic<bool> is_over_{false};
  std::optional<End> over_;
};

}  // namespace

NcclSecret make_nccl_secret() {
  const Nccl& nccl = Nccl::get();
  NcclSecret secret;
  for (NcclUniqueId& id : secret) nccl.check(nccl.ncclGetUniqueId(&id), "ncclGetUniqueId");
  return secret;
}

int nccl_version() {
  const Nccl& nccl = Nccl::get();
  int version = 0;
  nccl.check(nccl.ncclGetVersion(&version), "ncclGetVersion");
  return version;
}

std::shared_ptr<StreamCommunicator> join_nccl(const NcclSeat& seat) {
  return std::make_shared<NcclCommunicator>(seat);
}

}  // namespace spark::cuda
