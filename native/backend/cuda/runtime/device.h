// device.h: a CUDA device of this process: its primary context, attributes, streams, modules and pools.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "backend/cuda/runtime/driver.h"

namespace spark::cuda {

class Modules;
class Pool;
class Stream;

struct Attributes {
  int compute_capability;  // 121 for 12.1
  int multiprocessors;
  int shared_bytes;  // dynamic shared memory a thread block may ask for
  bool integrated;   // shares the host's physical memory
  bool managed;      // the CPU may use managed memory while kernels run
  bool pageable;     // reads ordinary process memory by the host's page tables, at the speed of any other
};

// Opened once per ordinal and process, shared by every environment and thread, never destroyed: no destructor
// may touch CUDA at exit.
class Device {
 public:
  // The device, opened at its first use, which can take hundreds of ms: not for the JavaScript thread. A
  // poisoned device is closed and replaced by a fresh one when no memory of it is alive. Throws ERR_NO_CUDA,
  // ERR_CUDA.
  static Device& open(int ordinal);

  // A device that is open. Throws ERR_NO_CUDA when it is not, ERR_CUDA when it is poisoned.
  static Device& get(int ordinal);

  // What the innermost DeviceScope of this thread names.
  static Device& current();

  // Throws unless `result` is success: ERR_OUT_OF_MEMORY or ERR_CUDA with the driver's name of the failure,
  // what was being done and what to do. A failure that ruins the context poisons the device.
  void check(CUresult result, const std::string& doing);

  // Throws the failure that poisoned the device, if one did.
  void require_healthy() const;

  // Loads every kernel family and cuBLASLt now, so that no launch has to. A family without an image for this
  // device is reported at its first launch; where the driver takes none it throws ERR_CUDA.
  void preload();

  const int ordinal;
  const Driver& driver;
  Attributes attributes{};
  std::atomic<int> live_blocks{0};  // blocks of device, managed and pinned memory that are in use

  // Work on a stream is done in order, and beside that of others. The first one is for single operations.
  static constexpr uint32_t kStreams = 4;
  Stream& stream() const { return *streams_[0]; }
  Stream& stream(uint32_t index);  // modulo kStreams; the device must be current
  Modules& modules() const { return *modules_; }
  Pool& staging() const { return *staging_; }  // pinned host memory

 private:
  friend class DeviceScope;
  explicit Device(int ordinal);
  ~Device() = delete;
  void open_context();
  bool enter();
  void leave();
  void close();
  [[noreturn]] void throw_cause() const;
  int attribute(int attribute, const char* name);
  void read_attributes();

  CUdevice handle_ = 0;
  CUcontext context_ = nullptr;
  std::mutex opening_;  // guards `streams_` but the first
  std::array<std::unique_ptr<Stream>, kStreams> streams_;
  std::unique_ptr<Modules> modules_;
  std::unique_ptr<Pool> staging_;

  std::atomic<int> scopes_{0};
  std::atomic<bool> closed_{false};  // the context is given back

  mutable std::mutex mutex_;  // guards cause_
  std::atomic<bool> poisoned_{false};
  std::string cause_;  // the first failure that ruined the context
};

// Makes a device current on this thread: operations are enqueued on its first stream. What was made in a
// context (streams, events, graphs, modules, memory) may be used and destroyed within a scope alone: the
// context stays while there is one, and once it is given back there is none any more.
class DeviceScope {
 public:
  // Throws ERR_CUDA when the device is closed.
  explicit DeviceScope(Device& device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device& device_;
  Device* outer_;
};

}  // namespace spark::cuda
