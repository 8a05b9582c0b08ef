// paged_attention.cu: attention over blocks of keys and values, by the formulas of backend/paged_args.h, in
// three launches: heads are normalized and rotated, keys and values written; tiles of 16 queries that share a
// head of keys meet 256 positions at a time, one for each thread; and where a block had one such chunk only,
// paged_merge.cu merges chunks. How work is shared out changes no bit. Trap: a thread keeps its elements of
// the output in global memory between chunks; nobody else may. Reference:
// native/backend/cpu/attention/paged_attention.cc
#include <type_traits>

#include "kernels/attention/paged.cuh"
#include "kernels/attention/paged_args.h"
#include "kernels/attention/paged_sums.cuh"
#include "kernels/attention/tile.cuh"
#include "kernels/reduce.cuh"
#include "kernels/store.cuh"

namespace spark {
namespace {

constexpr int kChunk = kPagedChunk;
constexpr int kPiece = 64;  // elements of queries that are in shared memory
static_assert(kThreads == kChunk);

// Element d of a head of row n, normalized and rotated.
struct PreparedHead {
  const PagedAttentionArgs& args;
  const float *from, *norm;
  int64_t n;
  float factor;  // of the normalization

  __device__ float normed(int64_t d) const { return norm ? from[d] * factor * norm[d] : from[d]; }
  __device__ float operator()(int64_t d) const {
    const int64_t half = args.shape.rotary / 2;
    if (d >= args.shape.rotary) return normed(d);
    const bool first = args.interleaved ? d % 2 == 0 : d < half;
    const int64_t i = args.interleaved ? d / 2 : d % half, apart = args.interleaved ? 1 : half;
    const float cos = args.cos[n * half + i], sin = args.sin[n * half + i];
    return first ? normed(d) * cos - normed(d + apart) * sin : normed(d) * cos + normed(d - apart) * sin;
  }
};

// Writes value(d) as the elements of a head of a token. All threads of the block must call it.
template <typename Format, typename Value>
__device__ void store_head(const PagedAttentionArgs& args, void* cache, float* scales, int64_t row,
                           const Value& value) {
  const int64_t depth = args.shape.depth;
  auto* to = static_cast<typename Format::Code*>(cache) + row * depth;
  if constexpr (sizeof(typename Format::Code) == 1 && !std::is_same_v<Format, E4M3>) {
    float largest = 0;
    for (int64_t d = threadIdx.x; d < depth; d += blockDim.x) largest = fmaxf(largest, fabsf(value(d)));
    const float scale = int8_scale(block_max(largest));
    if (threadIdx.x == 0) scales[row] = scale;
    for (int64_t d = threadIdx.x; d < depth; d += blockDim.x) to[d] = int8_code(value(d), scale);
  } else {
    for (int64_t d = threadIdx.x; d < depth; d += blockDim.x) {
      to[d] = Format::encode(value(d), cast_limit<Format>(true));
    }
  }
}

// A block for each head of queries and of keys of a row.
template <typename Format>
__device__ void prepare(const PagedAttentionArgs& args, float* queries) {
  const int64_t heads = args.shape.heads, kv_heads = args.shape.kv_heads, depth = args.shape.depth;
  const int64_t n = blockIdx.x / (heads + kv_heads), head = blockIdx.x % (heads + kv_heads);
  const bool is_query = head < heads;
  const int64_t own = n * kv_heads + head - heads;
  const float* from = is_query ? args.query + (n * heads + head) * depth : args.key + own * depth;
  PreparedHead prepared{args, from, is_query ? args.query_norm : args.key_norm, n, 1};
  if (prepared.norm) {
    float sum = 0;
    for (int64_t d = threadIdx.x; d < depth; d += blockDim.x) sum += from[d] * from[d];
    prepared.factor = 1 / sqrtf(block_sum(sum) / depth + args.epsilon);
  }
  if (is_query) {
    float* to = queries + (n * heads + head) * depth;
    for (int64_t d = threadIdx.x; d < depth; d += blockDim.x) to[d] = prepared(d);
    return;
  }
  const int64_t token = paged_row(args, n).token;
  if (token < 0) return;
  const int64_t row = token * kv_heads + head - heads;
  store_head<Format>(args, args.key_cache, args.key_scales, row, prepared);
  store_head<Format>(args, args.value_cache, args.value_scales, row,
                     [&](int64_t d) { return args.value[own * depth + d]; });
}

struct TileRow {
  int64_t n, head;
  PagedRow at;  // token: kPadding where there is no such row
};

// All that the threads of a block share.
struct alignas(16) Shared {
  float scores[kRows][kChunk];
  float queries[kPiece][kRows + 4];  // those of one element side by side: 16 bytes of them are read at once
  int64_t heads[kChunk];  // rows of the caches, of the positions of a chunk; negative where there is none
  TileRow rows[kRows];
  RowSum sums[kRows], chunk[kRows];
};

template <typename Format>
struct Tile {
  const PagedAttentionArgs& args;
  const PagedTiles& tiles;
  const float* queries;
  float* parts;
  Shared& shared;
  int kv_head;

  __device__ void run(unsigned tile, int own_chunk) {
    find_rows(tile);
    const int own = threadIdx.x / kRows;
    if (tiles.chunks > 0) {
      if (threadIdx.x % kRows == 0 && in_call(own)) part_of(own, own_chunk)[1] = 0;
    }
    if (threadIdx.x < kRows) shared.sums[threadIdx.x] = nothing();
    __syncthreads();
    for (int first = 0, last; first < kRows; first = last) {
      const auto sequence = static_cast<int>(shared.rows[first].at.sequence);
      for (last = first + 1; last < kRows && shared.rows[last].at.sequence == sequence;) ++last;
      if (sequence < 0) continue;
      const int begin = static_cast<int>(first_seen(args, shared.rows[first].at.position)) / kChunk;
      const int end = static_cast<int>(shared.rows[last - 1].at.position) / kChunk + 1;
      const bool one = tiles.chunks > 0;
      if (one && (own_chunk < begin || own_chunk >= end)) continue;
      for (int chunk = one ? own_chunk : begin; chunk < (one ? own_chunk + 1 : end); ++chunk) {
        add_chunk(chunk, first, last);
      }
    }
    if (tiles.chunks > 0 || !in_call(own)) return;
    const TileRow& row = shared.rows[own];
    float* y = output_of(own);
    const float factor = last_factor(args, shared.sums[own], row.head);
    for (int64_t e = threadIdx.x % kRows; e < args.shape.depth; e += kRows) {
      y[e] = row.at.token < 0 ? idle(row.at.token) : factor == 0 ? 0 : y[e] * factor;
    }
  }

  // Whether row `own` is one of the call, padding or not.
  __device__ bool in_call(int own) const { return shared.rows[own].head >= 0; }
  __device__ float* output_of(int own) const {
    return static_cast<float*>(args.y) +
           (shared.rows[own].n * args.shape.heads + shared.rows[own].head) * args.shape.depth;
  }
  __device__ const float* query_of(int own) const {
    return queries + (shared.rows[own].n * args.shape.heads + shared.rows[own].head) * args.shape.depth;
  }
  __device__ float* part_of(int own, int chunk) const {
    const int64_t row = shared.rows[own].n * args.shape.heads + shared.rows[own].head;
    return parts + (row * tiles.chunks + chunk) * (args.shape.depth + kPagedPartHead);
  }

  __device__ void find_rows(unsigned tile) {
    const PagedTile place(args, tiles, tile);
    kv_head = static_cast<int>(place.kv_head);
    if (threadIdx.x < kRows) {
      TileRow& row = shared.rows[threadIdx.x];
      row = {place.token_of(threadIdx.x), place.head_of(threadIdx.x), {kPadding, 0, kPadding}};
      if (row.head >= 0) {
        row.at = paged_row(args, row.n);
        if (row.at.token < 0) row.at.sequence = kPadding;
      }
    }
    __syncthreads();
  }

  // Whether row `own` of rows [first, last) sees a position.
  __device__ bool sees(int own, int position, int first, int last) const {
    if (own < first || own >= last) return false;
    const auto latest = static_cast<int>(shared.rows[own].at.position);
    return position <= latest && (args.window <= 0 || latest - position < args.window);
  }

  // Adds a chunk to the sums of rows [first, last), which are those of a sequence.
  __device__ void add_chunk(int chunk, int first, int last) {
    const int64_t sequence = shared.rows[first].at.sequence;
    const int start = chunk * kChunk;
    const int begin = static_cast<int>(first_seen(args, shared.rows[first].at.position)) - start;
    const int end = static_cast<int>(shared.rows[last - 1].at.position) + 1 - start;
    const int j = threadIdx.x;
    const int64_t token = j >= begin && j < end ? token_at(args, sequence, start + j) : kBroken;
    shared.heads[j] = token < 0 ? kBroken : token * args.shape.kv_heads + kv_head;
    const int rows = last - first;
    if (rows <= 4) {
      score<4>(start, first, last);
    } else if (rows <= 8) {
      score<8>(start, first, last);
    } else {
      score<kRows>(start, first, last);
    }
    __syncthreads();
    weigh(start, first, last);
    __syncthreads();
    add_values(chunk, start, first, last);
    __syncthreads();
    if (threadIdx.x >= first && threadIdx.x < last && shared.chunk[threadIdx.x].total != 0) {
      RowSum& sum = shared.sums[threadIdx.x];
      const RowSum& more = shared.chunk[threadIdx.x];
      const Factors factors(sum, more);
      sum = {factors.largest, factors.merge(sum.total, more.total)};
    }
    __syncthreads();
  }

  // Scores of up to kCount rows, a position for each thread, which sums over the elements in order.
  template <int kCount>
  __device__ void score(int start, int first, int last) {
    const int depth = static_cast<int>(args.shape.depth), j = threadIdx.x;
    const CachedHead<Format> key(args.key_cache, args.key_scales, depth, shared.heads[j]);
    float dots[kCount] = {};
    for (int from = 0; from < depth; from += kPiece) {
      __syncthreads();  // the last piece has been used
      for (int i = threadIdx.x; i < kCount * kPiece; i += kThreads) {
        const int own = first + i / kPiece;
        const int d = from + i % kPiece;
        shared.queries[i % kPiece][i / kPiece] = own < last && d < depth ? query_of(own)[d] : 0.0f;
      }
      __syncthreads();
      if (!key) continue;
      key.template each<kPiece>(from, [&](int d, float element) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) dots[i] = fmaf(shared.queries[d][i], element, dots[i]);
      });
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int own = first + i;
      if (own >= last) break;
      float value = dots[i] * args.scale;
      if (args.softcap != 0) value = args.softcap * tanhf(value / args.softcap);
      if (!key) value = NAN;
      shared.scores[own][j] = sees(own, start + j, first, last) ? value : -INFINITY;
    }
  }

  // Scores become weights in units of the row's e^largest.
  __device__ void weigh(int start, int first, int last) {
    constexpr int kWarps = kThreads / kWarp;
    const int lane = threadIdx.x % kWarp;
    for (int own = threadIdx.x / kWarp; own < kRows; own += kWarps) {
      float largest = -INFINITY;
      for (int j = lane; j < kChunk; j += kWarp) {
        if (!sees(own, start + j, first, last)) shared.scores[own][j] = -INFINITY;
        largest = fmaxf(largest, shared.scores[own][j]);
      }
      for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFF, largest, offset));
      }
      float total = 0;
      for (int j = lane; j < kChunk; j += kWarp) {
        float& score = shared.scores[own][j];
        score = score == -INFINITY ? 0 : expf(score - (largest == -INFINITY ? 0 : largest));
        total += score;
      }
      for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        total += __shfl_xor_sync(0xFFFFFFFF, total, offset);
      }
      if (lane == 0) shared.chunk[own] = {largest, total};
    }
  }

  // The thread's elements of rows [first, last): the same ones for each chunk.
  __device__ void add_values(int chunk, int start, int first, int last) {
    const int depth = static_cast<int>(args.shape.depth);
    for (int at = threadIdx.x; at < (last - first) * depth; at += kThreads)
      add_value(chunk, start, first + at / depth, at % depth);
  }

  __device__ void add_value(int chunk, int start, int own, int e) {
    const RowSum& more = shared.chunk[own];
    if (more.total == 0) return;
    const int depth = static_cast<int>(args.shape.depth);
    const int64_t latest = shared.rows[own].at.position;
    const int begin = static_cast<int>(max(first_seen(args, latest) - start, int64_t{0}));
    const int end = static_cast<int>(min(latest + 1 - start, int64_t{kChunk}));
    float sum = 0;
#pragma unroll 8
    for (int j = begin; j < end; ++j) {
      const CachedHead<Format> value(args.value_cache, args.value_scales, depth, shared.heads[j]);
      sum = fmaf(shared.scores[own][j], value ? value[e] : 0.0f, sum);
    }
    const Factors factors(shared.sums[own], more);
    if (tiles.chunks == 0) {
      float& to = output_of(own)[e];
      to = factors.merge(to, sum);
      return;
    }
    float* part = part_of(own, chunk);
    part[kPagedPartHead + e] = sum;
    if (e != 0) return;
    part[0] = more.largest;
    part[1] = more.total;
  }
};

template <typename Format>
__device__ void attend(const PagedAttentionArgs& args, const PagedTiles& tiles, const float* queries,
                       float* parts) {
  __shared__ Shared shared;
  const auto chunks = static_cast<unsigned>(max(tiles.chunks, int64_t{1}));
  Tile<Format>{args, tiles, queries, parts, shared, 0}.run(blockIdx.x / chunks,
                                                           static_cast<int>(blockIdx.x % chunks));
}

}  // namespace
}  // namespace spark

#define SPARK_PAGED(name, Format)                                                                           \
  extern "C" __global__ void paged_prepare_##name(spark::PagedAttentionArgs args, float* queries) {         \
    spark::prepare<Format>(args, queries);                                                                  \
  }                                                                                                         \
  extern "C" __global__ void __launch_bounds__(spark::attention_block::kThreads, 2) paged_attention_##name( \
      spark::PagedAttentionArgs args, spark::PagedTiles tiles, const float* queries, float* parts) {        \
    spark::attend<Format>(args, tiles, queries, parts);                                                     \
  }
SPARK_PAGED(f32, spark::F32)
SPARK_PAGED(f16, spark::F16)
SPARK_PAGED(bf16, spark::BF16)
SPARK_PAGED(f8_e4m3, spark::E4M3)
SPARK_PAGED(i8, spark::Int8)
