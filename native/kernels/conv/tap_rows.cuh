// tap_rows.cuh: the right side of convolutions whose images have their channels last.
#pragma once

#include "kernels/conv/conv.cuh"
#include "kernels/gemm/tiles.cuh"

namespace spark {
namespace {

// An image [N, image, G, channels]; what is outside of it is eight zeros, or those at `outside`.
struct ChannelsLastImage {
  const uint16_t* data;
  int32_t channels;  // of a group, a multiple of kChannelUnit
  const uint16_t* outside = nullptr;
};

// A thread copies eight neighbouring channels of some columns, at the same tap.
template <int kTile, bool kHasOutside = false>
struct TapRows {
  static constexpr bool kAlongK = true;
  struct Registers {};
  const Group& pass;
  int32_t channels;
  int64_t pitch;  // of pixels
  const uint16_t* outside;
  const uint16_t* images[kLoads];
  Position windows[kLoads];
  // Of the next tile: add_segment() starts each once, in their order.
  mutable int32_t channel = 0;
  mutable int32_t tap[3] = {};

  // Columns past the end repeat the last one; their sums are not stored.
  __device__ TapRows(const ForwardPass& pass, const ChannelsLastImage& image, int64_t col)
      : pass(pass),
        channels(image.channels),
        pitch(pass.args.shape.groups * image.channels),
        outside(image.outside) {
    for (int i = 0; i < kLoads; ++i) {
      const int32_t own = static_cast<int32_t>(col) + (threadIdx.x + i * kThreads<kTile>) / 4;
      const int32_t n = pass.place(min(own, pass.cols() - 1), windows[i]);
      images[i] = image.data + int64_t{n} * pass.pixels * pitch + int64_t{pass.group} * channels;
    }
    advance(threadIdx.x % 4 * static_cast<int32_t>(kChannelUnit));
  }

  // Past the last tap everything is outside of the image.
  __device__ void advance(int32_t count) const {
    for (channel += count; channel >= channels; channel -= channels) {
      bool carry = true;
      for (int i = 2; i >= 0; --i) {
        const auto dilation = static_cast<int32_t>(pass.args.shape.dilation[i]);
        if (carry) tap[i] += dilation;
        carry &= tap[i] >= dilation * static_cast<int32_t>(pass.args.shape.kernel[i]);
        if (carry) tap[i] = i == 0 ? kOutside : 0;
      }
    }
  }

  __device__ bool starts_copies() const { return true; }
  __device__ void start(Tile<kTile>& tile, int64_t, int64_t) const {
    const uint32_t offset = pass.offset_of(tap, pass.args.shape.image);
    for (int i = 0; i < kLoads; ++i) {
      const int at = threadIdx.x + i * kThreads<kTile>;
      const bool inside = pass.inside(windows[i], tap);
      const int64_t source = static_cast<int64_t>(windows[i].offset + offset) * pitch + channel;
      uint16_t* to = tile + row_offset(at / 4, at % 4);
      if constexpr (kHasOutside) {
        copy_async(to, inside ? images[i] + source : outside, true);
      } else {
        copy_async(to, images[i] + (inside ? source : 0), inside);
      }
    }
    advance(kDepth);
  }
  __device__ void fetch(Registers&, int64_t, int64_t) const {}
  __device__ void store(Tile<kTile>&, const Registers&) const {}
};

}  // namespace
}  // namespace spark
