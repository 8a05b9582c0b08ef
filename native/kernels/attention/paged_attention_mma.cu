// paged_attention_mma.cu: paged_attention of paged_attention.cu for many rows, on tensor cores: queries,
// keys, values and the weights of the values are rounded to bf16, or to f16 in …_mma_f16_…; sums and the
// softmax are f32. …_64, …_128 and …_256 take heads of up to so many elements. A block has up to 64 rows, 16
// for each of its warps: rows of the call that follow each other, each with the heads of queries that share a
// head of keys. It meets 64 positions at a time, or 32 in …_256, counted from 0: keys are on their way while
// values are multiplied, and values while keys are. A row's result depends on its own sequence alone; it may
// be NaN where one of the up to 63 positions behind it is not finite. Reference:
// native/backend/cpu/attention/paged_attention.cc
#include "kernels/attention/paged.cuh"
#include "kernels/attention/paged_args.h"
#include "kernels/attention/paged_sums.cuh"
#include "kernels/attention/tile_mma.cuh"
#include "kernels/quantize/nvfp4_store.cuh"

namespace spark {
namespace {

struct TileRow {
  int64_t index;            // n · heads + head; negative where there is no such row
  int64_t begin, end;       // positions that it sees
  int64_t sequence, token;  // negative where it takes part in nothing
  // Those of `keys` positions from `first` on.
  __device__ int begin_in(int64_t first, int keys) const { return offset(begin - first, keys); }
  __device__ int end_in(int64_t first, int keys) const { return offset(end - first, keys); }
  __device__ static int offset(int64_t from, int keys) {
    return static_cast<int>(max(int64_t{0}, min(int64_t{keys}, from)));
  }
};

template <int kDepth>
struct alignas(16) Shared : KeyTiles<kDepth> {
  // Rows of the caches, of the positions of two tiles; negative where there is none.
  int64_t heads[2][kKeysOf<kDepth>];
  TileRow rows[kTile];
};

// Sixteen neighbouring elements of a head in a cache, zeros beyond its end.
template <typename Format>
struct SixteenCodes {
  using Code = typename Format::Code;
  static constexpr int kOfPart = 16 / sizeof(Code);
  Bytes<16> parts[sizeof(Code)];
  float scale;

  // Of a head that is not there zeros times `unknown`. kWhole: sixteen are inside or none, at an address of
  // theirs.
  template <bool kWhole>
  __device__ void load(const CachedHead<Format>& head, int64_t first, float unknown) {
    scale = head ? head.scale : unknown;
    const int64_t inside = head ? head.depth - first : 0;
    if constexpr (kWhole) {
      const auto* from = reinterpret_cast<const Bytes<16>*>(head.data + first);
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(Code)); ++i) parts[i] = inside > 0 ? from[i] : Bytes<16>{};
    } else {
#pragma unroll
      for (int i = 0; i < 16; i += kOfPart) parts[i / kOfPart].load(head.data + first + i, inside - i);
    }
  }
  __device__ float element(int i) const {
    return Format::widen(parts[i / kOfPart].template at<Code>(i % kOfPart)) * scale;
  }
  template <typename Number>
  __device__ void store(uint16_t* low, uint16_t* high) const {
    Eight eights[2];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      eights[i / 4].pairs[i % 4] = round_pair<Number>(element(2 * i), element(2 * i + 1));
    *reinterpret_cast<Eight*>(low) = eights[0];
    *reinterpret_cast<Eight*>(high) = eights[1];
  }
};

// Elements of the heads of a tile, as Number, with zeros up to kDepth. Heads that are not there are zeros
// times `unknown`: as keys NaN, as values 0, since NaN times a weight of 0 is NaN.
template <typename Number, typename Format, int kDepth>
struct TileLoad {
  static constexpr int kRuns = kDepth / 16, kKeys = kKeysOf<kDepth>;
  uint16_t* const tile;
  const void* const cache;
  const float* const scales;
  const int64_t depth;
  const int64_t (&heads)[kKeys];
  const float unknown;

  __device__ uint16_t* to(int at, int half) const {
    return tile + tile_offset<kDepth>(at / kRuns, at % kRuns * 2 + half);
  }

  __device__ void run() const {
    const bool aligned = reinterpret_cast<uintptr_t>(cache) % 16 == 0;
    if (std::is_same_v<Number, Format> && aligned && depth % 8 == 0) {
      copy();
    } else if (aligned && depth % 16 == 0) {
      convert<true>();
    } else {
      convert<false>();
    }
  }

  __device__ void copy() const {
    for (int at = threadIdx.x; at < kKeys * kRuns; at += kThreads) {
      const int64_t head = heads[at / kRuns];
      const int first = at % kRuns * 16;
      for (int half = 0; half < 2; ++half) {
        if (head < 0) {
          const uint32_t pair = round_pair<Number>(0 * unknown, 0 * unknown);
          *reinterpret_cast<Eight*>(to(at, half)) = {{pair, pair, pair, pair}};
          continue;
        }
        const bool inside = first + half * 8 < depth;
        const auto* from =
            static_cast<const uint16_t*>(cache) + (inside ? head * depth + first + half * 8 : 0);
        copy_async(to(at, half), from, inside);
      }
    }
  }

  template <bool kWhole>
  __device__ void convert() const {
    for (int at = threadIdx.x; at < kKeys * kRuns; at += kThreads) {
      SixteenCodes<Format> codes;
      const CachedHead<Format> head(cache, scales, depth, heads[at / kRuns]);
      codes.template load<kWhole>(head, at % kRuns * 16, unknown);
      codes.template store<Number>(to(at, 0), to(at, 1));
    }
  }
};

// A head of a row in codes, from element `first` on, a multiple of 16 elements: the four lanes that have it
// find the scales of its blocks. value(eight, neighbour) are those of a lane. All lanes of a warp must call
// it, those whose row is not there, too.
template <int kDepth, typename Value>
__device__ void store_rounded(const RoundedTarget& to, bool is_there, int64_t row, int64_t first,
                              int64_t width, const Value& value) {
  constexpr unsigned kLanes = 0xFFFFFFFF;
  const bool stores = is_there && threadIdx.x % 4 == 0;
  const Nvfp4Store store{to.rows, row, to.scale};
#pragma unroll
  for (int n = 0; n < kDepth / 8; n += 2) {
    if (n * 8 >= width) break;
    float values[4];
    uint32_t largest = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      values[k] = value(n + k / 2, k % 2);
      largest = max(largest, float_bits(values[k]) & 0x7FFFFFFFu);
    }
    largest = max(largest, __shfl_xor_sync(kLanes, largest, 1));
    largest = max(largest, __shfl_xor_sync(kLanes, largest, 2));
    const uint32_t scale = nvfp4_block_scale(bits_float(largest), to.scale);
    const float step = nvfp4_step(scale, to.scale);
    if (stores) store.store_scale(first + n * 8, scale);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t codes = nvfp4_code(values[2 * half], step) | nvfp4_code(values[2 * half + 1], step) << 4;
      codes <<= threadIdx.x % 4 * 8;
      codes |= __shfl_xor_sync(kLanes, codes, 1);
      codes |= __shfl_xor_sync(kLanes, codes, 2);
      if (stores) store.store_word(first + (n + half) * 8, codes);
    }
  }
  if (stores && first == 0) store.finish(0, 1);
}

// The same of a head whose elements are one number, by one of its four lanes.
__device__ inline void store_rounded(const RoundedTarget& to, int64_t row, int64_t first, int64_t width,
                                     float value) {
  const Nvfp4Store store{to.rows, row, to.scale};
  const uint32_t scale = nvfp4_block_scale(fabsf(value), to.scale);
  const uint32_t code = nvfp4_code(value, nvfp4_step(scale, to.scale));
  for (int64_t e = threadIdx.x % 4 * kNvfp4Block; e < width; e += 4 * kNvfp4Block) {
    store.store_scale(first + e, scale);
    for (int half = 0; half < 2; ++half) store.store_word(first + e + half * 8, code * 0x11111111u);
  }
  if (first == 0 && threadIdx.x % 4 == 0) store.finish(0, 1);
}

template <typename Number, typename Format, int kDepth>
struct MmaTile {
  static constexpr int kKeys = kKeysOf<kDepth>;
  const PagedAttentionArgs& args;
  const PagedTiles& tiles;
  const float* queries;
  Shared<kDepth>& shared;
  int64_t kv_head = 0;
  uint32_t q[kDepth / 16][4];
  float sums[kDepth / 8][4];

  __device__ void run(int64_t tile) {
    find_rows(tile);
    const int depth = static_cast<int>(args.shape.depth);
    load_rows<Number, kDepth, kTile>(shared.queries(), depth, [&](int row) {
      const TileRow& at = shared.rows[row];
      return at.sequence < 0 ? nullptr : queries + at.index * depth;
    });
    __syncthreads();
    load_queries<kDepth>(q, shared.queries(), threadIdx.x / 32 * 16, (depth + 15) / 16);
    for (int first = 0, last; first < kTile; first = last) {
      const int64_t sequence = shared.rows[first].sequence;
      for (last = first + 1; last < kTile && shared.rows[last].sequence == sequence;) ++last;
      if (sequence >= 0) attend(sequence, first, last);
    }
    for (int i = 0; i < 2; ++i) {
      const TileRow& row = own(i);
      if (row.index < 0 || row.sequence >= 0) continue;
      store_idle(row.index, idle(row.token));
    }
  }

  // The lane's two rows.
  __device__ int own_at(int i) const { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i * 8; }
  __device__ const TileRow& own(int i) const { return shared.rows[own_at(i)]; }

  __device__ void find_rows(int64_t tile) {
    const PagedTile place(args, tiles, tile);
    kv_head = place.kv_head;
    if (threadIdx.x < kTile) {
      TileRow& row = shared.rows[threadIdx.x];
      row = {-1, 0, 0, kPadding, kPadding};
      const int64_t n = place.token_of(threadIdx.x), head = place.head_of(threadIdx.x);
      if (head >= 0) {
        const PagedRow at = paged_row(args, n);
        row = {n * args.shape.heads + head, first_seen(args, at.position), at.position + 1,
               at.token < 0 ? kPadding : at.sequence, at.token};
      }
    }
    __syncthreads();
  }

  // Rows of the caches of the positions [first, first + kKeys), those of them that any of the rows sees.
  __device__ void find_heads(int64_t sequence, int64_t first, int64_t begin, int64_t end,
                             int64_t (&heads)[kKeys]) {
    if (threadIdx.x >= kKeys) return;
    const int64_t position = first + threadIdx.x;
    const int64_t token = position >= begin && position < end ? token_at(args, sequence, position) : kBroken;
    heads[threadIdx.x] = token < 0 ? kBroken : token * args.shape.kv_heads + kv_head;
  }

  // Starts to load the keys of a tile, or the values.
  __device__ void load_keys(const int64_t (&heads)[kKeys]) {
    TileLoad<Number, Format, kDepth>{shared.keys(),    args.key_cache, args.key_scales,
                                     args.shape.depth, heads,          NAN}
        .run();
    copy_commit();
  }
  __device__ void load_values(const int64_t (&heads)[kKeys]) {
    TileLoad<Number, Format, kDepth>{
        shared.values(), args.value_cache, args.value_scales, args.shape.depth, heads, 0}
        .run();
    copy_commit();
  }

  // y of rows [first_row, last_row), which are those of a sequence, in the order of their positions.
  __device__ void attend(int64_t sequence, int first_row, int last_row) {
    const int64_t begin = shared.rows[first_row].begin, end = shared.rows[last_row - 1].end;
    const int steps = static_cast<int>((args.shape.depth + 15) / 16);
    RowSums rows;
#pragma unroll
    for (int i = 0; i < kDepth / 2; ++i) sums[i / 4][i % 4] = 0;
    int64_t first = begin / kKeys * kKeys;
    int side = 0;
    __syncthreads();  // queries and keys of the last sequence have been used
    find_heads(sequence, first, begin, end, shared.heads[side]);
    __syncthreads();
    load_keys(shared.heads[side]);
    for (; first < end; first += kKeys, side ^= 1) {
      load_values(shared.heads[side]);
      find_heads(sequence, first + kKeys, begin, end, shared.heads[side ^ 1]);
      copy_wait<1>();
      __syncthreads();  // the keys are there
      float scores[kKeys / 8][4] = {};
      multiply_keys<Number, kDepth>(q, shared.keys(), steps, scores);
      __syncthreads();  // they have been used
      if (first + kKeys < end) {
        load_keys(shared.heads[side ^ 1]);
      } else {
        copy_commit();
      }
      scale_scores(scores, args.scale, args.softcap);
      for (int i = 0; i < 2; ++i) {
        const int seen_from = own(i).begin_in(first, kKeys), seen_to = own(i).end_in(first, kKeys);
        if (seen_from > 0 || seen_to < kKeys) hide_keys(scores, i, seen_from, seen_to);
      }
      weigh(scores, rows, sums);
      copy_wait<1>();
      __syncthreads();  // the values are there
      multiply_values<Number, kDepth>(scores, shared.values(), steps, sums);
      __syncthreads();  // they have been used
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float total = row_sum(rows.total[i]);
      const bool is_own = own_at(i) >= first_row && own_at(i) < last_row;
      const int64_t index = is_own ? own(i).index : 0;
      const float factor = last_factor(args, {rows.largest[i] * kLn2, total}, index % args.shape.heads);
      if (is_own && args.y) {
        store_row<kDepth>(args.y_dtype, args.y, index * args.shape.depth, args.shape.depth, sums, i, factor);
      }
      if constexpr (kDepth <= kRoundedDepth) {
        if (tiles.rounded.scale == 0) continue;
        store_rounded<kDepth>(tiles.rounded, is_own, index / args.shape.heads,
                              index % args.shape.heads * args.shape.depth, args.shape.depth,
                              [&](int n, int at) { return factor == 0 ? 0 : sums[n][i * 2 + at] * factor; });
      }
    }
  }

  // y of a head that sees nothing.
  __device__ void store_idle(int64_t index, float value) {
    const int64_t depth = args.shape.depth;
    for (int64_t e = threadIdx.x % 4; args.y && e < depth; e += 4) {
      store_as(args.y_dtype, args.y, index * depth + e, value);
    }
    if (tiles.rounded.scale == 0) return;
    store_rounded(tiles.rounded, index / args.shape.heads, index % args.shape.heads * depth, depth, value);
  }
};

}  // namespace
}  // namespace spark

// Tiles of late rows, which see most, begin first.
#define SPARK_PAGED_MMA(number, Number, format, Format, depth, blocks)                                    \
  extern "C" __global__ void __launch_bounds__(spark::attention_mma_block::kThreads, blocks)              \
      paged_attention_mma_##number##_##format##_##depth(spark::PagedAttentionArgs args,                   \
                                                        spark::PagedTiles tiles, const float* queries) {  \
    __shared__ spark::Shared<depth> shared;                                                               \
    spark::MmaTile<spark::Number, spark::Format, depth>{args, tiles, queries, shared}.run(gridDim.x - 1 - \
                                                                                          blockIdx.x);    \
  }
#define SPARK_PAGED_MMA_DEPTHS(number, Number, format, Format) \
  SPARK_PAGED_MMA(number, Number, format, Format, 64, 3)       \
  SPARK_PAGED_MMA(number, Number, format, Format, 128, 2)      \
  SPARK_PAGED_MMA(number, Number, format, Format, 256, 2)
SPARK_PAGED_MMA_DEPTHS(bf16, BF16, bf16, BF16)
SPARK_PAGED_MMA_DEPTHS(bf16, BF16, f32, F32)
SPARK_PAGED_MMA_DEPTHS(bf16, BF16, f8_e4m3, E4M3)
SPARK_PAGED_MMA_DEPTHS(bf16, BF16, i8, Int8)
SPARK_PAGED_MMA_DEPTHS(f16, F16, f16, F16)
SPARK_PAGED_MMA_DEPTHS(f16, F16, f32, F32)
SPARK_PAGED_MMA_DEPTHS(f16, F16, f8_e4m3, E4M3)
SPARK_PAGED_MMA_DEPTHS(f16, F16, i8, Int8)
