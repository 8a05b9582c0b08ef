// staging.cc: copies of host operands through pinned memory.
#include "backend/cuda/runtime/staging.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/stream.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

// Bytes of a piece: two of them are pinned during an upload.
constexpr int64_t kPiece = int64_t{16} << 20;

// Two pieces of pinned memory, one of which is filled while the other is on its way.
class Pieces {
 public:
  Pieces(Device& device, int64_t bytes) : device_(device) {
    for (Pool::Piece& piece : pieces_) piece = device.staging().take(static_cast<size_t>(bytes));
  }
  ~Pieces() {
    for (const Pool::Piece& piece : pieces_) device_.staging().give(piece);
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  void* operator[](int64_t i) const { return pieces_[static_cast<size_t>(i % 2)].data; }

 private:
  Device& device_;
  std::array<Pool::Piece, 2> pieces_;
};

}  // namespace

void upload(Device& device, std::byte* target, const std::byte* data, int64_t bytes) {
  const DeviceScope scope(device);
  const Pieces pieces(device, std::min(bytes, kPiece));
  const auto address = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  Stream& stream = device.stream();
  for (int64_t begin = 0, i = 0; begin < bytes; begin += kPiece, ++i) {
    const auto size = static_cast<size_t>(std::min(kPiece, bytes - begin));
    std::memcpy(pieces[i], data + begin, size);
    stream.synchronize();  // the piece before this one has arrived
    device.check(
        device.driver.cuMemcpyAsync(address(target + begin), address(pieces[i]), size, stream.handle()),
        "copying weights");
  }
  stream.synchronize();
}

Staging::~Staging() {
  if (!passed_ && !(operands_.empty() && blocks_.empty())) {
    try {
      wait();
    } catch (const Error&) {  // the context is ruined and uses nothing
    }
  }
  for (const Operand& operand : operands_) {
    if (operand.on_device.data) device_.stream().scratch().give(operand.on_device);
    device_.staging().give(operand.pinned);
  }
}

void Staging::copy(const void* target, const void* source, size_t bytes) {
  const auto address = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  device_.check(
      device_.driver.cuMemcpyAsync(address(target), address(source), bytes, device_.stream().handle()),
      "copying operands");
}

void* Staging::add(const void* data, size_t bytes, Access access) {
  operands_.push_back({device_.staging().take(bytes), {}, bytes, access});
  Operand& operand = operands_.back();
  if (access != Access::kWrite) std::memcpy(operand.pinned.data, data, bytes);
  if (device_.attributes.integrated) return operand.pinned.data;
  operand.on_device = device_.stream().scratch().take(bytes);
  if (access != Access::kWrite) copy(operand.on_device.data, operand.pinned.data, bytes);
  return operand.on_device.data;
}

void Staging::fetch() {
  for (const Operand& operand : operands_) {
    if (operand.access == Access::kRead || !operand.on_device.data) continue;
    copy(operand.pinned.data, operand.on_device.data, operand.bytes);
  }
}

void Staging::wait() {
  device_.stream().synchronize();
  passed_ = true;
}

}  // namespace spark::cuda
