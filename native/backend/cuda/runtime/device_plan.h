// device_plan.h: a plan on a device: where its operands lie there, the copies around its runs, and its runs.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/memory_speed.h"
#include "backend/cuda/runtime/recording.h"
#include "backend/cuda/runtime/resident.h"
#include "backend/cuda/runtime/staging.h"
#include "core/block.h"
#include "core/footprint.h"

namespace spark::cuda {

// A buffer of the host that operands lie in has a copy on the device, made when the first of them is placed.
// Before each run what the steps read of it is copied there, afterwards what they wrote is copied back,
// through pinned memory, unless its role says that it stays there; nothing else of the buffer is touched.
// What kinds of memory these are, memory_speed.h chooses. Blocks that the device reaches are used where they
// are.
//
// The device must be current in all calls but those to declare() and write_back(). One run at a time.
class DevicePlan {
 public:
  // What the steps do with memory: kPassing comes and goes with each run, kScratch is written before it is
  // read, kConstant is only read, kState changes from run to run, and kShared, which is only read, never
  // changes while a plan reads it: all plans share one copy.
  enum class Role { kPassing, kScratch, kConstant, kState, kShared };

  // `stream`: where its runs go. `graphs`: see Recording.
  DevicePlan(Stream& stream, bool graphs);
  ~DevicePlan();
  DevicePlan(const DevicePlan&) = delete;
  DevicePlan& operator=(const DevicePlan&) = delete;

  Device& device() const { return device_; }
  Stream& stream() const { return stream_; }

  // Says what the role of `bytes` at `data` is; kPassing unless it is said.
  void declare(const void* data, int64_t bytes, Role role);

  // Where the device reaches `bytes` at `data` without a copy, or null; keeps their block.
  void* reach(const void* data, int64_t bytes);

  // Address on the device of an operand at `data`, of whose bytes `touched` are, in the buffer of
  // `buffer_bytes` at `buffer`.
  void* put(std::byte* buffer, int64_t buffer_bytes, const void* data, const Footprint& touched,
            Access access);

  // Says that the operands placed since the last call are those of one step.
  void end_step();

  // Begins a run, a fetch or a store; in_flight() is true from here on. Waits for work that failed half-way.
  void begin();
  // To be set to false when the device has passed what was enqueued since begin().
  const std::shared_ptr<std::atomic<bool>>& in_flight() const { return in_flight_; }

  // Fills the copies that plans share, unless that is done; waits: not for the JavaScript thread.
  void upload_shared();

  // Copies what the steps read from the buffers of the host to where the copies to the device begin.
  void read_inputs();
  // Enqueues `steps` between the copies.
  void enqueue(const std::function<void()>& steps);
  // Marks the beginning and the end of a run on the device, from the first call of run_ms() on.
  void mark_begin() { mark(0); }
  void mark_end() { mark(1); }
  // Milliseconds between the two marks of the last run, which the device has passed; negative when it has
  // none.
  double run_ms();

  // Enqueues the copy of the state from the device, or copies that in the buffers and enqueues it to there.
  void enqueue_fetch();
  void enqueue_store();

  // Copies what came back from the device to the buffers of a role that are still there.
  void write_back(Role role, const std::function<bool(const void* buffer)>& is_attached);

  // Whether there has been a run; the first one may wait for the device, to measure.
  bool has_run() const { return recording_.has_run(); }

  // Why the steps could not be captured, or "".
  const std::string& problem() const { return recording_.problem(); }

 private:
  // The part of a buffer that has a role, at the offsets that it has in the whole.
  struct Area {
    Role role;
    std::shared_ptr<Block> host;       // that the device reaches, of what is passed on and of state
    std::shared_ptr<Block> on_device;  // of the kind for it; null where the device reads `host` instead
    std::shared_ptr<Resident> shared;  // what `on_device` belongs to, of what is shared
    int64_t bytes;
    Ranges read;  // before a step has written it
    FootprintSet written;
  };
  struct Use {
    Area* area;
    Footprint touched;
    Access access;
  };

  // An array that plans share.
  struct SharedArray {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };

  void mark(size_t i);
  Role role_of(const void* data, Range touched) const;
  // The array that holds bytes behind `data`; of no bytes when no single one does.
  SharedArray shared_array(const void* data, Range touched) const;
  Area make_area(const void* buffer, int64_t bytes, Role role);
  void upload(const Block& target, const void* data, int64_t bytes);
  void copy(const Block& target, const Block& source, Range range);

  Stream& stream_;
  Device& device_;
  const MemoryChoice memory_;
  std::map<Role, Ranges> declared_;                    // addresses
  std::map<std::byte*, int64_t> shared_;               // bytes of arrays by their address
  std::map<std::pair<std::byte*, Role>, Area> areas_;  // by the first address of the buffer
  std::vector<Use> uses_;                              // of the step that is being bound
  std::vector<std::shared_ptr<Block>> blocks_;
  Recording recording_;
  bool is_timed_ = false;
  bool is_marked_ = false;  // both marks are those of one run
  std::array<CUevent, 2> marks_{};
  std::shared_ptr<std::atomic<bool>> in_flight_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace spark::cuda
