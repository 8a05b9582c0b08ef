// footprint.cc: overlap tests of footprints.
#include "core/footprint.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace spark {

void Ranges::add(Range range) {
  if (range.size() <= 0) return;
  auto next = ends_.upper_bound(range.begin);
  if (next != ends_.begin() && std::prev(next)->second >= range.begin) --next;
  while (next != ends_.end() && next->first <= range.end) {
    range = {std::min(range.begin, next->first), std::max(range.end, next->second)};
    next = ends_.erase(next);
  }
  ends_.emplace(range.begin, range.end);
}

bool Ranges::covers(Range range) const {
  const auto next = ends_.upper_bound(range.begin);
  return next != ends_.begin() && std::prev(next)->second >= range.end;
}

namespace {

// Takes loops whose runs touch each other into the run.
void join(Footprint& footprint) {
  std::vector<Footprint::Loop>& loops = footprint.loops;
  while (!loops.empty() && loops.front().step <= footprint.run) {
    footprint.run += (loops.front().count - 1) * loops.front().step;
    loops.erase(loops.begin());
  }
}

}  // namespace

Footprint::Footprint(int64_t offset, std::span<const Axis> axes) : offset(offset), run(1) {
  for (const auto& [size, stride] : axes) {
    if (size == 0) {
      *this = Footprint(0);
      return;
    }
    if (size == 1 || stride == 0) continue;
    if (stride < 0) this->offset += (size - 1) * stride;
    loops.push_back({size, std::abs(stride)});
  }
  std::sort(loops.begin(), loops.end(), [](const Loop& a, const Loop& b) { return a.step < b.step; });
  join(*this);
}

Range Footprint::span() const {
  int64_t end = offset + run;
  for (const Loop& loop : loops) end += (loop.count - 1) * loop.step;
  return {offset, end};
}

Footprint Footprint::scaled(int64_t unit, int64_t by) const {
  Footprint result = *this;
  result.offset = offset * unit + by;
  result.run *= unit;
  for (Loop& loop : result.loops) loop.step *= unit;
  return result;
}

bool Footprint::merge(const Footprint& other) {
  const int64_t end = offset + run, other_end = other.offset + other.run;
  if (loops != other.loops || other.offset > end || offset > other_end) return false;
  offset = std::min(offset, other.offset);
  run = std::max(end, other_end) - offset;
  join(*this);
  return true;
}

namespace {

void copy_loops(std::byte* target, const std::byte* source, std::span<const Footprint::Loop> loops,
                int64_t run) {
  if (loops.empty()) {
    std::memcpy(target, source, run);
    return;
  }
  const auto [count, step] = loops.back();
  for (int64_t i = 0; i < count; ++i) {
    copy_loops(target + i * step, source + i * step, loops.first(loops.size() - 1), run);
  }
}

}  // namespace

void Footprint::copy(std::byte* target, const std::byte* source) const {
  if (run > 0) copy_loops(target + offset, source + offset, loops, run);
}

void FootprintSet::add(const Footprint& footprint) {
  spans_.add(footprint.span());
  if (footprint.loops.empty()) return dense_.add(footprint.span());
  // The parts of a concatenation are written one after another.
  if (with_gaps_.empty() || !with_gaps_.back().merge(footprint)) with_gaps_.push_back(footprint);
  if (!with_gaps_.back().loops.empty()) return;
  dense_.add(with_gaps_.back().span());
  with_gaps_.pop_back();
}

void FootprintSet::copy(std::byte* target, const std::byte* source) const {
  dense_.each([&](Range range) {
    std::memcpy(target + range.begin, source + range.begin, static_cast<size_t>(range.size()));
  });
  for (const Footprint& footprint : with_gaps_) footprint.copy(target, source);
}

}  // namespace spark
