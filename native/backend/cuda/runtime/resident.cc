// resident.cc: registry and upload of what is resident on devices.
#include "backend/cuda/runtime/resident.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <tuple>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/memory.h"
#include "backend/cuda/runtime/stream.h"

namespace spark::cuda {
namespace {

// Bytes of a piece: two of them are pinned during an upload.
constexpr int64_t kPiece = int64_t{16} << 20;

constexpr int64_t kWord = 4;  // kernels read whole words: word_at() of block_formats.h

using Key = std::tuple<const Device*, const std::byte*, int64_t>;

struct Registry {
  std::mutex mutex;
  std::map<Key, std::weak_ptr<Resident>> copies;

  static Registry& get() {
    static Registry* registry = new Registry;  // copies may die when static objects are gone
    return *registry;
  }
};

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

Resident::Resident(Device& device, const std::byte* data, int64_t bytes, MemoryKind kind)
    : device_(device),
      data_(data),
      bytes_(bytes),
      block_(allocate(device, kind, static_cast<size_t>((bytes + kWord - 1) / kWord * kWord))) {}

std::shared_ptr<Resident> Resident::of(Device& device, const std::byte* data, int64_t bytes,
                                       MemoryKind kind) {
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  const Key key{&device, data, bytes};
  const auto found = registry.copies.find(key);
  std::shared_ptr<Resident> copy = found == registry.copies.end() ? nullptr : found->second.lock();
  if (!copy) {
    copy = std::shared_ptr<Resident>(new Resident(device, data, bytes, kind));
    registry.copies[key] = copy;
  }
  return copy;
}

Resident::~Resident() {
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.copies.find({&device_, data_, bytes_});
  if (found != registry.copies.end() && found->second.expired()) registry.copies.erase(found);
}

void Resident::upload() {
  const std::lock_guard lock(mutex_);
  if (is_uploaded_) return;
  const DeviceScope scope(device_);
  const Pieces pieces(device_, std::min(bytes_, kPiece));
  const auto address = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  for (int64_t begin = 0, i = 0; begin < bytes_; begin += kPiece, ++i) {
    const auto size = static_cast<size_t>(std::min(kPiece, bytes_ - begin));
    std::memcpy(pieces[i], data_ + begin, size);
    device_.stream().synchronize();  // the piece before this one has arrived
    device_.check(device_.driver.cuMemcpyAsync(address(block_->data + begin), address(pieces[i]), size,
                                               device_.stream().handle()),
                  "copying weights");
  }
  device_.stream().synchronize();
  is_uploaded_ = true;
}

}  // namespace spark::cuda
