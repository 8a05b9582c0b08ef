// resident.cc: registry and upload of what is resident on devices.
#include "backend/cuda/runtime/resident.h"

#include <map>
#include <tuple>

#include "backend/cuda/runtime/memory.h"
#include "backend/cuda/runtime/staging.h"

namespace spark::cuda {
namespace {

using Key = std::tuple<const Device*, const std::byte*, int64_t>;

struct Registry {
  std::mutex mutex;
  std::map<Key, std::weak_ptr<Resident>> copies;

  static Registry& get() {
    static Registry* registry = new Registry;  // copies may die when static objects are gone
    return *registry;
  }
};

}  // namespace

Resident::Resident(Device& device, const std::byte* data, int64_t bytes, MemoryKind kind)
    : device_(device),
      data_(data),
      bytes_(bytes),
      block_(allocate(device, kind, in_words(static_cast<size_t>(bytes)))) {}

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
  cuda::upload(device_, block_->data, data_, bytes_);
  is_uploaded_ = true;
}

}  // namespace spark::cuda
