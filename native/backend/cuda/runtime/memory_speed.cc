// memory_speed.cc: a measurement of the kinds of memory of an integrated GPU.
#include "backend/cuda/runtime/memory_speed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/memory.h"
#include "backend/cuda/runtime/stream.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

constexpr int64_t kResident = 16 << 20;  // elements, 96 MiB in all: more than the caches of a GPU hold
constexpr int64_t kPassing = 2 << 20;    // elements, 12 MiB in all: a batch of images
constexpr int kPasses = 8, kRounds = 3;
// A kind must be this much faster than the usual one: two measurements of one differ by some percent.
constexpr double kMargin = 1.05;

// Numbers in f32, and in f16 behind them.
size_t bytes_of(int64_t count) { return count * (sizeof(float) + sizeof(uint16_t)); }

// Reads and writes a block once, on the device.
void pass(const Block& block, int64_t count) {
  CastArgs args{DType::kF32, DType::kF16, count, false, block.data, block.data + count * sizeof(float)};
  cast(args);
}

// The most bytes per nanosecond of some rounds of `work`, after one to get used to the memory.
template <typename Work>
double best_rate(size_t bytes, const Work& work) {
  double best = 0;
  for (int round = 0; round <= kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    if (round > 0) best = std::max(best, bytes / took.count());
  }
  return best;
}

double resident_rate(Device& device, MemoryKind kind) {
  const std::shared_ptr<Block> block = allocate(device, kind, bytes_of(kResident));
  return best_rate(kPasses * bytes_of(kResident), [&] {
    for (int i = 0; i < kPasses; ++i) pass(*block, kResident);
    device.stream().synchronize();
  });
}

void copy(Device& device, const std::byte* target, const std::byte* source, size_t bytes) {
  const auto address = [](const std::byte* data) { return reinterpret_cast<CUdeviceptr>(data); };
  const CUstream stream = device.stream().handle();
  device.check(device.driver.cuMemcpyAsync(address(target), address(source), bytes, stream),
               "copying between kinds of memory");
}

double passing_rate(Device& device, MemoryKind kind) {
  const size_t bytes = bytes_of(kPassing), in = kPassing * sizeof(float), out = bytes - in;
  const bool moves = kind == MemoryKind::kDevice;
  const std::shared_ptr<Block> host = allocate(device, moves ? MemoryKind::kPinned : kind, bytes);
  const std::shared_ptr<Block> used = moves ? allocate(device, kind, bytes) : host;
  std::vector<std::byte> inputs(in), outputs(out);
  return best_rate(bytes, [&] {
    std::memcpy(host->data, inputs.data(), in);
    if (moves) copy(device, used->data, host->data, in);
    pass(*used, kPassing);
    if (moves) copy(device, host->data + in, used->data + in, out);
    device.stream().synchronize();
    std::memcpy(outputs.data(), host->data + in, out);
  });
}

// The fastest of `kinds`; an earlier one where a later one is not faster by the margin.
MemoryKind fastest(std::initializer_list<MemoryKind> kinds, const std::vector<MemorySpeed>& measured,
                   double MemorySpeed::*rate) {
  MemoryKind best = *kinds.begin();
  double best_rate = 0;
  for (const MemoryKind kind : kinds) {
    for (const MemorySpeed& speed : measured) {
      if (speed.kind != kind || speed.*rate <= best_rate * kMargin) continue;
      best = kind;
      best_rate = speed.*rate;
    }
  }
  return best;
}

MemoryChoice default_choice(const Device& device) {
  MemoryChoice choice;
  if (device.attributes.integrated) choice.passing = MemoryKind::kPinned;
  if (!device.attributes.managed) choice.held = MemoryKind::kPinned;
  return choice;
}

MemoryChoice measure(Device& device) {
  const DeviceScope scope(device);
  MemoryChoice choice = default_choice(device);
  std::vector<MemorySpeed>& measured = choice.measured;
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinned, MemoryKind::kManaged}) {
    if (kind == MemoryKind::kManaged && !device.attributes.managed) continue;
    try {
      measured.push_back({kind, resident_rate(device, kind), passing_rate(device, kind)});
    } catch (const Error&) {
      device.require_healthy();
    }
  }
  if (measured.empty()) return choice;
  constexpr MemoryKind kDevice = MemoryKind::kDevice, kPinned = MemoryKind::kPinned,
                       kManaged = MemoryKind::kManaged;
  choice.resident = fastest({kDevice, kPinned, kManaged}, measured, &MemorySpeed::resident);
  choice.passing = fastest({kPinned, kDevice, kManaged}, measured, &MemorySpeed::passing);
  choice.held = fastest({kManaged, kPinned}, measured, &MemorySpeed::resident);
  return choice;
}

// By the device's number: another context finds the same memory.
struct Choices {
  std::mutex measuring;
  std::mutex mutex;  // guards `of`
  std::map<int, MemoryChoice> of;

  static Choices& get() {
    static Choices* choices = new Choices;  // leaked: used until the process is gone
    return *choices;
  }

  std::optional<MemoryChoice> find(int ordinal) {
    std::lock_guard lock(mutex);
    const auto found = of.find(ordinal);
    return found == of.end() ? std::nullopt : std::optional(found->second);
  }
};

}  // namespace

MemoryChoice measure_memory(Device& device) {
  Choices& choices = Choices::get();
  std::lock_guard measuring(choices.measuring);
  if (const std::optional<MemoryChoice> known = choices.find(device.ordinal)) return *known;
  MemoryChoice choice = device.attributes.integrated ? measure(device) : default_choice(device);
  std::lock_guard lock(choices.mutex);
  return choices.of[device.ordinal] = choice;
}

MemoryChoice memory_choice(const Device& device) {
  const std::optional<MemoryChoice> known = Choices::get().find(device.ordinal);
  return known ? *known : default_choice(device);
}

}  // namespace spark::cuda
