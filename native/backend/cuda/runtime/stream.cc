// stream.cc: streams and the thread that waits for their events.
#include "backend/cuda/runtime/stream.h"

#include <thread>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/memory.h"

namespace spark::cuda {
namespace {

constexpr unsigned kNonBlocking = 1;                // CU_STREAM_NON_BLOCKING
constexpr unsigned kBlockingSyncWithoutTiming = 3;  // CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING

thread_local const Redirection* redirection = nullptr;

}  // namespace

Redirection::Redirection(Stream& stream, Pool& scratch)
    : stream(stream), handle(stream.handle_), scratch(scratch), captured(false), outer_(redirection) {
  redirection = this;
}

Redirection::Redirection(Stream& stream, CUstream capture, Pool& scratch)
    : stream(stream), handle(capture), scratch(scratch), captured(true), outer_(redirection) {
  redirection = this;
}

Redirection::~Redirection() { redirection = outer_; }

const Redirection* Redirection::current() { return redirection; }

Stream& Stream::current(Device& device) { return redirection ? redirection->stream : device.stream(); }

CUstream Stream::handle() const { return redirection ? redirection->handle : handle_; }

Stream::Stream(Device& device)
    : device_(device), scratch_(std::make_unique<Pool>(*this, MemoryKind::kDevice)) {
  device.check(device.driver.cuStreamCreate(&handle_, kNonBlocking), "cuStreamCreate");
}

Stream::~Stream() = default;

void Stream::synchronize() {
  const DeviceScope scope(device_);
  device_.check(device_.driver.cuStreamSynchronize(handle_), "waiting for the kernels");
}

CUevent Stream::take_event() {
  {
    std::lock_guard lock(mutex_);
    if (!free_events_.empty()) {
      const CUevent event = free_events_.back();
      free_events_.pop_back();
      return event;
    }
  }
  CUevent event;
  device_.check(device_.driver.cuEventCreate(&event, kBlockingSyncWithoutTiming), "cuEventCreate");
  return event;
}

void Stream::then(Done done) {
  const DeviceScope scope(device_);
  const CUevent event = take_event();
  const CUresult result = device_.driver.cuEventRecord(event, handle_);
  std::unique_lock lock(mutex_);
  if (result != kSuccess) {
    free_events_.push_back(event);
    lock.unlock();
    device_.check(result, "cuEventRecord");
  }
  if (!start_thread()) {
    lock.unlock();
    complete({event, std::move(done)});
    return;
  }
  waiting_.push_back({event, std::move(done)});
  wake_.notify_one();
}

bool Stream::start_thread() {
  if (started_) return true;
  try {
    std::thread([this] { wait_in_order(); }).detach();
    started_ = true;
  } catch (const std::exception&) {  // a limit on processes or memory
  }
  return started_;
}

void Stream::complete(Waiting waiting) {
  std::exception_ptr failure;
  try {
    const DeviceScope scope(device_);
    device_.check(device_.driver.cuEventSynchronize(waiting.event), "a kernel");
  } catch (...) {
    failure = std::current_exception();
  }
  waiting.done(failure);
  waiting.done = nullptr;  // what it kept alive goes now, not with the next completion
  std::lock_guard lock(mutex_);
  free_events_.push_back(waiting.event);
}

void Stream::wait_in_order() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return !waiting_.empty(); });
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    complete(std::move(next));
    lock.lock();
  }
}

}  // namespace spark::cuda
