// scratch.cc: per-thread scratch memory.
#include "backend/cpu/scratch.h"

#include "core/per_thread.h"

namespace spark::cpu {
namespace {

constexpr int64_t kMaxKept = int64_t{1} << 24;

struct Kept {
  std::unique_ptr<float[]> data;
  int64_t floats = 0;
  bool taken = false;
};
struct OfThread {
  Kept kept[2];  // a padded input, and what its products need
};

}  // namespace

Scratch::Scratch(int64_t floats) {
  Kept(&kept)[2] = PerThread<OfThread>::get().kept;
  Kept* slot = kept[0].taken ? &kept[1] : &kept[0];
  if (slot->taken || floats > kMaxKept) {
    own_.reset(new float[floats]);
    data_ = own_.get();
    return;
  }
  if (floats > slot->floats) {
    slot->floats = 0;
    slot->data.reset();
    slot->data.reset(new float[floats]);
    slot->floats = floats;
  }
  slot->taken = true;
  data_ = slot->data.get();
}

Scratch::~Scratch() {
  if (own_) return;
  for (Kept& slot : PerThread<OfThread>::get().kept) {
    if (slot.data.get() == data_) slot.taken = false;
  }
}

}  // namespace spark::cpu
