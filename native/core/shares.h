// shares.h: indices that threads claim, each first of a share of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

namespace spark {

// Who has the same share of each of several loops finds in its caches what it wrote in the last one. A share
// is a run of neighbouring indices; whoever is done with its own claims of those that others have left.
class Shares {
 public:
  Shares() = default;
  Shares(int64_t count, int64_t shares) { open(count, shares); }

  // Shares out [0, count). Nobody may be claiming.
  void open(int64_t count, int64_t shares) {
    if (capacity_ < shares) {
      shares_ = std::make_unique<Share[]>(shares);
      capacity_ = shares;
    }
    size_ = shares;
    for (int64_t i = 0; i < shares; ++i) {
      shares_[i].next.store(count * i / shares, std::memory_order_relaxed);
      shares_[i].end = count * (i + 1) / shares;
    }
  }

  // Claims [begin, end) of share `own` modulo their number, or of the first behind it that has some left;
  // false where none has. Guided self-scheduling: half of what is left there, at most `most`, so that slow
  // cores end with the others.
  bool claim(int64_t own, int64_t& begin, int64_t& end, int64_t most = std::numeric_limits<int64_t>::max()) {
    for (int64_t i = 0; i < size_; ++i) {
      Share& share = shares_[(own + i) % size_];
      begin = share.next.load(std::memory_order_relaxed);
      while (begin < share.end) {
        end = begin + std::min(most, (share.end - begin + 1) / 2);
        if (share.next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) return true;
      }
    }
    return false;
  }

  // Leaves nothing to claim.
  void finish() {
    for (int64_t i = 0; i < size_; ++i) shares_[i].next = shares_[i].end;
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next = 0;  // that nobody has claimed
    int64_t end = 0;
  };

  std::unique_ptr<Share[]> shares_;
  int64_t size_ = 0, capacity_ = 0;
};

}  // namespace spark
