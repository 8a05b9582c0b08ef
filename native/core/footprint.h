// footprint.h: the part of an array that an operation touches, and sets of such parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace spark {

struct Range {
  int64_t begin, end;

  int64_t size() const { return end - begin; }
};

// A set of positions, as ranges that neither overlap nor touch.
class Ranges {
 public:
  void add(Range range);
  bool covers(Range range) const;
  bool empty() const { return ends_.empty(); }

  // Calls `visit` with each Range, in order.
  template <typename Visit>
  void each(const Visit& visit) const {
    for (const auto& [begin, end] : ends_) visit(Range{begin, end});
  }

 private:
  std::map<int64_t, int64_t> ends_;  // by where the range begins
};

// Runs of `run` positions, the first of which begins at `offset` plus a multiple of each loop's step.
struct Footprint {
  struct Axis {
    int64_t size, stride;
  };
  struct Loop {
    int64_t count, step;  // at least 2 and more than `run`
    bool operator==(const Loop&) const = default;
  };

  int64_t offset = 0, run = 0;
  std::vector<Loop> loops;  // ascending steps; none where the positions are one range

  // The first `count` positions.
  Footprint(int64_t count) : run(count) {}

  // Those of offset + Σ index[i] · stride[i], which lie within the address space.
  Footprint(int64_t offset, std::span<const Axis> axes);

  // From the first position to behind the last one.
  Range span() const;

  // The same elements in units of which an element has `unit`, `by` units further on.
  Footprint scaled(int64_t unit, int64_t by = 0) const;

  // Adds what `other` has where the union is a footprint, too: neighbouring columns of one matrix.
  bool merge(const Footprint& other);

  // Copies the bytes of the footprint.
  void copy(std::byte* target, const std::byte* source) const;
};

// The union of footprints.
class FootprintSet {
 public:
  void add(const Footprint& footprint);
  // False also where only several footprints with gaps cover the range together.
  bool covers(Range range) const { return dense_.covers(range); }
  bool empty() const { return spans_.empty(); }
  // What lies between the first and the last position of a footprint.
  const Ranges& spans() const { return spans_; }
  void copy(std::byte* target, const std::byte* source) const;

 private:
  Ranges spans_, dense_;
  std::vector<Footprint> with_gaps_;
};

}  // namespace spark
