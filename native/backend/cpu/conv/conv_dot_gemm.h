// conv_dot_gemm.h: convolutions as dot-product GEMM (dot_kernels.h): the filters are rows, the positions of
// an image the columns of panels, which are packed from the padded input tile by tile.
#pragma once

#include <algorithm>
#include <vector>

#include "backend/cpu/conv/conv_reading.h"
#include "backend/cpu/gemm/dot_kernels.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/parallel_tasks.h"

namespace spark::cpu {

constexpr int64_t kRowsAtOnce = 32;  // filters whose sums are kept in a cache

// body(index, workspace) for each task of so many dot products, as parallel_tasks does; here where there are
// few.
template <typename Body>
void run_tasks(int64_t count, int64_t work, int64_t floats, const Body& body) {
  constexpr int64_t kGrainDots = 1 << 15;  // dot products worth waking a thread for
  const int64_t grains = count * work / kGrainDots;
  if (count > 1 && grains >= 2) return parallel_tasks(count, floats, body, grains);
  const Scratch workspace(floats);
  for (int64_t index = 0; index < count; ++index) body(index, workspace.data());
}

// The positions of an output as lines of neighbours in a padded input.
struct ConvLines {
  int64_t width, heights, pitch[2];

  ConvLines(const ConvShape& shape, const PaddedInput& input)
      : width(shape.out[2]), heights(shape.out[1]), pitch{input.pitch(0), input.pitch(1)} {
    if (pitch[1] == width) {  // no gaps: one line
      width *= heights;
      heights = 1;
      if (pitch[0] == width) width *= shape.out[0];
    }
  }

  // Calls body(at, offset, run) for each run of neighbours among the positions [begin, begin + count).
  template <typename Body>
  void for_each_run(int64_t begin, int64_t count, const Body& body) const {
    for (int64_t at = 0; at < count;) {
      const int64_t line = (begin + at) / width, x = (begin + at) % width;
      const int64_t run = std::min(count - at, width - x);
      body(at, line / heights * pitch[0] + line % heights * pitch[1] + x, run);
      at += run;
    }
  }
};

// run(first, count, planes) for the images [first, first + count): all of them at once where x needs no
// padding, else one after the other, whose planes fill(first, count, planes) writes down, counting those of
// all images.
template <typename Element, typename Fill, typename Run>
void for_each_padded(const ConvShape& shape, const PaddedInput& input, const Element* x, const Fill& fill,
                     const Run& run) {
  if (input.plain()) return run(0, shape.batch, x);
  constexpr int64_t kGrainBytes = 1 << 16, kBytes = sizeof(Element);
  const int64_t plane = input.plane();
  const Scratch workspace((padded_floats(plane, shape.channels) * kBytes + 3) / 4);
  auto* planes = reinterpret_cast<Element*>(workspace.data());
  for (int64_t n = 0; n < shape.batch; ++n) {
    parallel_for(shape.channels, grain_for(plane, kGrainBytes / kBytes), [&](int64_t begin, int64_t end) {
      fill(n * shape.channels + begin, end - begin, planes + begin * plane);
    });
    run(n, 1, planes);
  }
}

// Some filters of an image at some positions. `row` counts the filters of all groups.
struct ConvTile {
  int64_t image, row, rows, col, cols;
};

// Dot-product groups of kPerGroup elements that follow each other along channels and taps.
template <typename Element, int64_t kPerGroup>
class ConvDotGemm {
 public:
  ConvDotGemm(const ConvShape& shape, const ConvReading& reading)
      : groups_(shape.groups),
        filters_(shape.filters / shape.groups),
        positions_(numel(shape.out)),
        lines_(shape, reading.input()),
        group_elements_(shape.channels / shape.groups * reading.input().plane()) {
    for (int64_t c = 0; c < shape.channels / shape.groups; ++c) {
      for (const int64_t tap : reading.taps()) rows_.push_back(c * reading.input().plane() + tap);
    }
    dot_groups_ = (std::ssize(rows_) + kPerGroup - 1) / kPerGroup;
    rows_.resize(dot_groups_ * kPerGroup, kNoRow);
    const int64_t max_width = kPackedDotGroups / std::max<int64_t>(dot_groups_, 1);  // none without channels
    width_ = std::clamp(max_width / kPanelRows * kPanelRows, kPanelRows, kTile);
    height_ = filters_;
    const int64_t tiles = across();
    while (tiles * down() < 2 * thread_count() && height_ >= 2 * kMinRows) height_ = (height_ + 1) / 2;
  }

  int64_t dot_groups() const { return dot_groups_; }

  // body(tile, data, panels) for the tiles of images [first, first + count), whose planes begin at `data`;
  // the body gets those of its group, and workspace for the panels of its tile.
  template <typename Body>
  void for_each_tile(int64_t first, int64_t count, const Element* data, const Body& body) const {
    const int64_t across = this->across(), down = this->down();
    const int64_t work = std::min(width_, positions_) * height_ * dot_groups_;
    run_tasks(count * groups_ * down * across, work, dot_groups_ * width_,
              [&](int64_t index, float* workspace) {
                const int64_t col = index % across * width_, row = index / across % down * height_;
                const int64_t of_group = index / across / down, group = of_group % groups_;
                body(ConvTile{first + of_group / groups_, group * filters_ + row,
                              std::min(height_, filters_ - row), col, std::min(width_, positions_ - col)},
                     data + of_group * group_elements_, reinterpret_cast<uint32_t*>(workspace));
              });
  }

  // body(at, cols, panel) for the panels of a tile.
  template <typename Body>
  void for_each_panel(const ConvTile& tile, uint32_t* panels, const Body& body) const {
    for (int64_t at = 0; at < tile.cols; at += kPanelRows) {
      body(at, std::min(kPanelRows, tile.cols - at), panels + at * dot_groups_);
    }
  }

  // Positions [col, col + cols) as a panel; interleave(elements, count, to) makes dot_groups of neighbours.
  template <typename Interleave>
  void pack(int64_t col, int64_t cols, const Element* data, const Interleave& interleave,
            uint32_t* panel) const {
    static constexpr Element kZeros[kPanelRows] = {};
    lines_.for_each_run(col, cols, [&](int64_t at, int64_t offset, int64_t run) {
      for (int64_t l = 0; l < dot_groups_; ++l) {
        const int64_t* row = rows_.data() + kPerGroup * l;
        const Element* elements[kPerGroup];
        for (int64_t i = 0; i < kPerGroup; ++i) {
          elements[i] = row[i] == kNoRow ? kZeros : data + offset + row[i];
        }
        interleave(elements, run, panel + l * kPanelRows + at);
      }
    });
  }

  // sums[i * kTile + j] += row i · column j, for rows of `stride` dot_groups.
  template <typename Sum>
  void multiply(MultiplyDots<Sum> multiply, const uint32_t* rows, int64_t stride, int64_t m,
                const uint32_t* panel, int64_t cols, Sum* sums) const {
    for (int64_t group = 0; group < dot_groups_; group += kDotGroups) {
      multiply(rows + group, stride, m, panel + group * kPanelRows, cols,
               std::min(kDotGroups, dot_groups_ - group), sums);
    }
  }

 private:
  static constexpr int64_t kPackedDotGroups = 1 << 16;  // of a tile, which stay in a cache
  static constexpr int64_t kMinRows = 64;  // filters of a task, or packing costs as much as multiplying
  static constexpr int64_t kNoRow = -1;

  int64_t across() const { return (positions_ + width_ - 1) / width_; }
  int64_t down() const { return (filters_ + height_ - 1) / height_; }

  int64_t groups_, filters_, positions_;
  ConvLines lines_;
  int64_t group_elements_, dot_groups_, width_, height_;
  std::vector<int64_t> rows_;  // [kPerGroup · dot_groups]: where the elements of position 0 are
};

}  // namespace spark::cpu
