// collective.cc: bindings of communicators.
#include "napi/collective.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "backend/cuda/nccl/nccl.h"
#include "collective/delegate.h"
#include "collective/local.h"
#include "collective/mpi.h"
#include "core/condition.h"
#include "core/error.h"
#include "napi/arguments.h"
#include "napi/env.h"
#include "napi/job.h"
#include "napi/job_memory.h"

namespace spark::napi {
namespace {

using collective::Communicator;

// A thread that does one job after the other, from the first one on.
class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { stop(); }

  void post(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    changed_.notify_one();
  }

  // Does what was posted before; returns when the thread is gone.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void work() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [this] { return stopped_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      {
        const std::function<void()> job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job();
      }
      lock.lock();
    }
  }

  std::mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> jobs_;
  bool stopped_ = false;
  std::thread thread_;
};

// A communicator and its threads: messages go out and come in at once. Collectives have the thread that
// opened the communicator, as MPI wants it.
struct Member {
  Member(napi_env env, std::shared_ptr<Communicator> communicator)
      : env(env), communicator(std::move(communicator)) {
    napi_add_env_cleanup_hook(env, end, this);
  }
  ~Member() {
    napi_remove_env_cleanup_hook(env, end, this);
    stop();
  }

  // Before the environment goes, and with it the memory that the threads use.
  static void end(void* member) { static_cast<Member*>(member)->stop(); }

  void stop() {
    if (!left) communicator->abort(message("rank ", communicator->rank(), " ended without leaving"));
    sender.stop();
    receiver.stop();
    collectives.stop();
  }

  Worker& worker(const std::string& op) {
    return op == "send" ? sender : op == "recv" ? receiver : collectives;
  }

  const napi_env env;
  const std::shared_ptr<Communicator> communicator;
  bool left = false;
  std::shared_ptr<collective::Delegate> delegate;  // the communicator, where JavaScript makes its sums
  uint64_t summer = 0;                             // of `delegate`
  Worker sender, receiver, collectives;
};

Member& member_of(const Napi::Value& handle) {
  if (!handle.IsExternal()) throw Error("ERR_ARGUMENT", "communicator must be the handle of a communicator");
  return *handle.As<Napi::External<Member>>().Data();
}

Napi::Value wrap(Napi::Env env, Member* member) {
  return Napi::External<Member>::New(env, member, [](Napi::Env, Member* member) { delete member; });
}

Napi::Value wrap(Napi::Env env, std::shared_ptr<Communicator> communicator) {
  return wrap(env, new Member(env, std::move(communicator)));
}

// Calls the function of JavaScript that sums, with a copy of the values: who waits for it may give up.
void ask_summer(Napi::Env env, uint64_t summer, collective::Delegate& delegate, uint64_t number) {
  auto& summers = EnvState::of(env).summers;
  const auto found = summers.find(summer);
  if (found == summers.end()) return delegate.abort("the communicator has ended");
  try {
    Napi::Float32Array copy;
    const bool waits = delegate.take(number, [&](const float* values, size_t count) {
      copy = Napi::Float32Array::New(env, count);
      std::copy_n(values, count, copy.Data());
    });
    if (waits) found->second.Call({Napi::Number::New(env, static_cast<double>(number)), copy});
  } catch (const std::exception& error) {
    delegate.abort(error.what());
  }
}

template <typename T>
int64_t count_of(const Napi::Object& args, const char* name) {
  const Napi::Value array = args.Get(name);
  if (!array.IsTypedArray()) throw Error("ERR_ARGUMENT", message(name, " must be a typed array"));
  return static_cast<int64_t>(array.As<Napi::TypedArray>().ByteLength() / sizeof(T));
}

// What `op` does on its thread.
std::function<void()> work_of(const std::string& op, Communicator& communicator, const Napi::Object& args,
                              Arguments& in) {
  if (op == "open") return [&communicator] { communicator.open(); };
  if (op == "barrier") return [&communicator] { communicator.barrier(); };
  if (op == "leave") return [&communicator] { communicator.leave(); };
  if (op == "allReduce") {
    const int64_t count = count_of<float>(args, "values");
    float* values = in.update<float>("values", count);
    return [=, &communicator] { communicator.all_reduce(values, count); };
  }
  const int64_t size = count_of<uint8_t>(args, "bytes");
  if (op == "allGather") {
    const uint8_t* bytes = in.input<uint8_t>("bytes", size);
    uint8_t* all = in.output<uint8_t>("all", elements(size, communicator.world()));
    return [=, &communicator] { communicator.all_gather(bytes, size, all); };
  }
  const int64_t peer = in.size("peer");
  if (peer >= communicator.world() || (op != "broadcast" && peer == communicator.rank())) {
    throw Error("ERR_ARGUMENT",
                message(op, ": rank ", peer, " is no other rank of a world of ", communicator.world(),
                        ", of which this is rank ", communicator.rank()));
  }
  const int rank = static_cast<int>(peer);
  if (op == "send") {
    const uint8_t* bytes = in.input<uint8_t>("bytes", size);
    return [=, &communicator] { communicator.send(rank, bytes, size); };
  }
  uint8_t* bytes = in.update<uint8_t>("bytes", size);
  if (op == "recv") return [=, &communicator] { communicator.recv(rank, bytes, size); };
  if (op == "broadcast") return [=, &communicator] { communicator.broadcast(bytes, size, rank); };
  throw Error("ERR_ARGUMENT", message("a communicator has no operation ", op));
}

// Does `work` on a thread of the communicator. A promise of `result`.
Napi::Value start_on(Napi::Env env, Worker& worker, std::function<void()> work, JobResult result) {
  napi_deferred deferred;
  napi_value promise;
  if (napi_create_promise(env, &deferred, &promise) != napi_ok) throw Napi::Error::New(env);
  EnvState& state = EnvState::of(env);
  const uint64_t ticket =
      state.expect([deferred, result = std::move(result)](Napi::Env env, std::exception_ptr failure) {
        settle(env, deferred, failure, result);
      });
  worker.post([work = std::move(work), ticket, door = state.door] {
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    door->knock([ticket, failure](Napi::Env env) { EnvState::of(env).arrived(ticket, failure); });
  });
  return Napi::Value(env, promise);
}

}  // namespace

std::shared_ptr<PlanCommunicator> PlanCommunicator::of(const Napi::Value& handle) {
  if (handle.IsUndefined()) return nullptr;
  auto plan = std::make_shared<PlanCommunicator>();
  plan->communicator = member_of(handle).communicator;
  plan->handle = Napi::Persistent(handle.As<Napi::Object>());
  return plan;
}

Napi::Value start_with_ranks(Napi::Env env, const PlanCommunicator& ranks, std::function<void()> work,
                             JobResult result) {
  Communicator* const communicator = ranks.communicator.get();
  const auto run = [work = std::move(work), communicator] {
    try {
      work();
    } catch (const std::exception& error) {
      communicator->abort(message("rank ", communicator->rank(), " failed: ", error.what()));
      throw;
    }
  };
  return start_on(env, member_of(ranks.handle.Value()).collectives, run, std::move(result));
}

Napi::Value communicator_local(const Napi::CallbackInfo& info) {
  const Arguments in(info[0].As<Napi::Object>());
  const collective::Seat seat{
      in.text("name"),
      static_cast<uint64_t>(in.size("epoch")),
      static_cast<int>(in.size("rank")),
      static_cast<int>(in.size("world")),
      std::chrono::milliseconds(in.size("timeoutMs")),
  };
  return wrap(info.Env(), collective::join_local(seat));
}

Napi::Value communicator_mpi(const Napi::CallbackInfo& info) {
  const Arguments in(info[0].As<Napi::Object>());
  const collective::MpiSeat seat{
      static_cast<uint64_t>(in.size("epoch")),
      static_cast<int>(in.size("rank")),
      static_cast<int>(in.size("world")),
      std::chrono::milliseconds(in.size("timeoutMs")),
  };
  return wrap(info.Env(), collective::join_mpi(seat));
}

Napi::Value nccl_secret(const Napi::CallbackInfo& info) {
  return start_query<cuda::NcclSecret>(
      info.Env(), cuda::make_nccl_secret, [](Napi::Env env, const cuda::NcclSecret& secret) {
        return Napi::Buffer<char>::Copy(env, secret.data()->bytes, sizeof secret);
      });
}

Napi::Value nccl_version(const Napi::CallbackInfo& info) {
  return start_query<int>(info.Env(), cuda::nccl_version,
                          [](Napi::Env env, const int& version) { return Napi::Number::New(env, version); });
}

Napi::Value communicator_nccl(const Napi::CallbackInfo& info) {
  const Arguments in(info[0].As<Napi::Object>());
  cuda::NcclSeat seat{
      static_cast<uint64_t>(in.size("epoch")), static_cast<int>(in.size("rank")),
      static_cast<int>(in.size("world")),      std::chrono::milliseconds(in.size("timeoutMs")),
      static_cast<int>(in.size("device")),     {},
  };
  std::memcpy(&seat.secret, in.values<uint8_t>("secret", sizeof seat.secret), sizeof seat.secret);
  return wrap(info.Env(), cuda::join_nccl(seat));
}

Napi::Value communicator_delegate(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const Arguments in(info[0].As<Napi::Object>());
  static std::atomic<uint64_t> last_summer{0};
  const uint64_t summer = ++last_summer;
  const auto ask = [summer, door = EnvState::of(env).door](const std::shared_ptr<collective::Delegate>& self,
                                                           uint64_t number) {
    door->knock([=, waiting = std::weak_ptr(self)](Napi::Env env) {
      if (const auto delegate = waiting.lock()) ask_summer(env, summer, *delegate, number);
    });
  };
  const auto delegate = std::make_shared<collective::Delegate>(static_cast<int>(in.size("rank")),
                                                               static_cast<int>(in.size("world")), ask);
  EnvState::of(env).summers.emplace(summer, Napi::Persistent(info[1].As<Napi::Function>()));
  auto* member = new Member(env, delegate);
  member->delegate = delegate;
  member->summer = summer;
  return wrap(env, member);
}

Napi::Value communicator_summed(const Napi::CallbackInfo& info) {
  const Member& member = member_of(info[0]);
  if (!member.delegate) throw Error("ERR_ARGUMENT", "communicator must be one whose sums JavaScript makes");
  const auto sums = info[2].As<Napi::Float32Array>();
  member.delegate->give(static_cast<uint64_t>(info[1].ToNumber().Int64Value()), sums.Data(),
                        sums.ElementLength());
  return info.Env().Undefined();
}

Napi::Value communicator_call(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Member& member = member_of(info[0]);
  const std::string op = info[1].ToString();
  const Napi::Object args = info[2].As<Napi::Object>();
  const auto copies = std::make_shared<Copies>();
  Arguments in(args, {}, copies.get());
  std::function<void()> work = work_of(op, *member.communicator, args, in);

  // What the thread works on stays until it is done: the handle, the arrays and their copies.
  auto kept = std::make_shared<std::vector<Napi::ObjectReference>>(in.take_references());
  kept->push_back(Napi::Persistent(info[0].As<Napi::Object>()));
  if (op == "leave") {
    member.left = true;
    EnvState::of(env).summers.erase(member.summer);
  }
  return start_on(env, member.worker(op), std::move(work),
                  [copies, kept, blocks = in.take_blocks()](Napi::Env env) {
                    copies->write_back();
                    return env.Undefined();
                  });
}

Napi::Value communicator_abort(const Napi::CallbackInfo& info) {
  member_of(info[0]).communicator->abort(info[1].ToString());
  return info.Env().Undefined();
}

}  // namespace spark::napi
