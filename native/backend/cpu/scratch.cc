#include "backend/cpu/scratch.h"

namespace spark::cpu {
namespace {

constexpr int64_t kMostKept = int64_t{1} << 24;

struct Kept {
  std::unique_ptr<float[]> room;
  int64_t floats = 0;
  bool taken = false;
};
thread_local Kept kept;

}  // namespace

Scratch::Scratch(int64_t floats) {
  if (kept.taken || floats > kMostKept) {
    own_.reset(new float[floats]);
    data_ = own_.get();
    return;
  }
  if (floats > kept.floats) {
    kept.floats = 0;
    kept.room.reset();
    kept.room.reset(new float[floats]);
    kept.floats = floats;
  }
  kept.taken = true;
  data_ = kept.room.get();
}

Scratch::~Scratch() {
  if (!own_) kept.taken = false;
}

}  // namespace spark::cpu
