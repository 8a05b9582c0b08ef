// paged_attention.cc: attention over blocks of keys and values: rows are written into the caches, then tiles
// of rows that share a head of keys meet one chunk of positions after the other.
#include <algorithm>
#include <cmath>

#include "backend/cpu/attention/attention_tiles.h"
#include "backend/cpu/attention/paged_cache.h"
#include "backend/cpu/attention/paged_tables.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/parallel_tasks.h"
#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();
static_assert(kPagedChunk == kBlock);

// to = rotate(norm(from)) of a head of row n.
void prepare_head(const PagedAttentionArgs& args, const float* from, const float* norm, int64_t n,
                  float* to) {
  const int64_t depth = args.shape.depth, half = args.shape.rotary / 2;
  if (norm) {
    const float mean = kernels().rows.square_sum(from, depth, 0) / static_cast<float>(depth);
    kernels().rows.normalize(from, depth, 0, 1 / std::sqrt(mean + args.epsilon), norm, nullptr, to);
  } else {
    std::copy_n(from, depth, to);
  }
  const float *cos = args.cos + n * half, *sin = args.sin + n * half;
  const int64_t step = args.interleaved ? 2 : 1, apart = args.interleaved ? 1 : half;
  for (int64_t i = 0; i < half; ++i) {
    float &a = to[i * step], &b = to[i * step + apart];
    const float x = a, y = b;
    a = x * cos[i] - y * sin[i];
    b = y * cos[i] + x * sin[i];
  }
}

// A thread has all rows of a head: whatever the tables say, none writes where another does.
void write_rows(const PagedAttentionArgs& args, const PagedTables& tables) {
  const PagedAttentionShape& shape = args.shape;
  const PagedCache keys = key_cache(args), values = value_cache(args);
  const Scratch prepared(shape.kv_heads * shape.depth);
  const int64_t grain = grain_for(shape.tokens * shape.depth, 1 << 12);
  parallel_for(shape.kv_heads, grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < shape.tokens; ++n) {
      const int64_t slot = tables.slots[n];
      if (slot < 0) continue;
      for (int64_t head = begin; head < end; ++head) {
        const int64_t from = (n * shape.kv_heads + head) * shape.depth;
        float* key = prepared.data() + head * shape.depth;
        prepare_head(args, args.key + from, args.key_norm, n, key);
        keys.store(slot, head, key);
        values.store(slot, head, args.value + from);
      }
    }
  });
}

// What a row has summed: Σ e^(w − max), and the same with the values.
struct RowSum {
  float max = -kInfinity, total = 0;
};

// Some of the queries of a sequence that meet one head of keys: query i is that of its row i / group, and of
// head i mod group of those that share the head of keys.
struct TileOf {
  const PagedSequence* sequence;
  int64_t kv_head, first, count;
};

class Tile {
 public:
  Tile(const PagedAttentionArgs& args, const PagedTables& tables, const TileOf& of, float* workspace)
      : args_(args), shape_(args.shape), tables_(tables), of_(of), kernels_(kernels().rows) {
    group_ = shape_.heads / shape_.kv_heads;
    rows_ = of.count;
    queries_ = workspace;
    keys_ = queries_ + left_floats(shape_.depth);
    values_ = keys_ + kPagedChunk * shape_.depth;
    scores_ = values_ + kPagedChunk * shape_.depth;
    weights_ = scores_ + sums_floats(kBlock);
    part_ = weights_ + left_floats(kBlock);
    out_ = part_ + sums_floats(shape_.depth);
    panel_ = out_ + sums_floats(shape_.depth);
  }

  static int64_t workspace_floats(const PagedAttentionShape& shape) {
    return left_floats(shape.depth) + 2 * kPagedChunk * shape.depth + sums_floats(kBlock) +
           left_floats(kBlock) + 2 * sums_floats(shape.depth) + kPanelFloats;
  }

  void run() {
    for (int64_t row = 0; row < rows_; ++row) {
      const float* query = args_.query + (token(row) * shape_.heads + head(row)) * shape_.depth;
      prepare_head(args_, query, args_.query_norm, token(row), values_);
      put_row(values_, shape_.depth, row, queries_);
    }
    const int64_t end = position(rows_ - 1) + 1;
    int64_t s = first_seen(args_, position(0));
    while (s < end) {
      const int64_t next = std::min(end, (s / kPagedChunk + 1) * kPagedChunk);
      add_chunk(s, next - s);
      s = next;
    }
    for (int64_t row = 0; row < rows_; ++row) store(row);
  }

 private:
  int64_t token(int64_t row) const { return of_.sequence->first + (of_.first + row) / group_; }
  int64_t head(int64_t row) const { return of_.kv_head * group_ + (of_.first + row) % group_; }
  int64_t position(int64_t row) const { return of_.sequence->past + (of_.first + row) / group_; }

  // to[j] = the head's elements at position s + j of a cache.
  void gather(const PagedCache& cache, int64_t s, int64_t count, float* to) const {
    const int64_t size = shape_.block_size;
    const int32_t* blocks = tables_.blocks.data() + of_.sequence->table;
    for (int64_t j = 0; j < count; ++j, to += shape_.depth) {
      cache.load(blocks[(s + j) / size] * size + (s + j) % size, of_.kv_head, to);
    }
  }

  // Adds positions [s, s + count), which lie in one chunk, to the sums of all rows.
  void add_chunk(int64_t s, int64_t count) {
    gather(key_cache(args_), s, count, keys_);
    gather(value_cache(args_), s, count, values_);
    multiply_rows(queries_, rows_, {keys_, shape_.depth, 0, count, shape_.depth}, panel_, scores_);
    RowSum sums[kTileRows];
    for (int64_t row = 0; row < rows_; ++row) sums[row] = weigh(row, s, count);
    for (int64_t e = 0; e < shape_.depth; e += kTile) {
      for (int64_t row = 0; row < rows_; ++row) std::fill_n(sums_at(part_, row, e / kTile), kTile, 0.0f);
    }
    multiply_columns(weights_, rows_, {values_, shape_.depth, 0, count, shape_.depth}, panel_, part_);
    for (int64_t row = 0; row < rows_; ++row) merge(row, sums[row]);
  }

  // The scores of a row with positions [s, s + count) become weights in units of e^max.
  RowSum weigh(int64_t row, int64_t s, int64_t count) {
    float *scores = scores_ + row * kTile, *weights = weights_ + row * kLine;
    const int64_t begin = std::clamp<int64_t>(first_seen(args_, position(row)) - s, 0, count);
    const int64_t end = std::clamp<int64_t>(position(row) + 1 - s, begin, count);
    std::fill_n(weights, begin, 0.0f);
    std::fill(weights + end, weights + count, 0.0f);
    float scale = args_.scale;
    if (args_.softcap != 0) {
      for (int64_t j = begin; j < end; ++j) {
        scores[j] = args_.softcap * std::tanh(scores[j] * args_.scale / args_.softcap);
      }
      scale = 1;
    }
    RowSum sum;
    sum.max = kernels_.scores(scores + begin, end - begin, scale, nullptr);
    const float shift = sum.max == -kInfinity ? 0 : sum.max;
    sum.total = kernels_.exponentials(scores + begin, end - begin, shift, weights + begin);
    return sum;
  }

  // Adds a chunk to what a row has summed before, both in units of the larger e^max.
  void merge(int64_t row, const RowSum& chunk) {
    RowSum& sum = sums_[row];
    if (chunk.total == 0) return;
    const float max = std::max(sum.max, chunk.max);
    const float before = sum.total == 0 ? 0 : std::exp(sum.max - max), now = std::exp(chunk.max - max);
    for (int64_t e = 0; e < shape_.depth; e += kTile) {
      const int64_t count = std::min(kTile, shape_.depth - e);
      float *out = sums_at(out_, row, e / kTile), *part = sums_at(part_, row, e / kTile);
      for (int64_t i = 0; i < count; ++i)
        out[i] = before == 0 ? part[i] * now : out[i] * before + part[i] * now;
    }
    sum = {max, sum.total * before + chunk.total * now};
  }

  void store(int64_t row) {
    RowSum& sum = sums_[row];
    float* y = args_.y + (token(row) * shape_.heads + head(row)) * shape_.depth;
    if (tables_.slots[token(row)] < 0 || sum.total == 0) {
      std::fill_n(y, shape_.depth, 0.0f);
      return;
    }
    float factor = 1 / sum.total;
    if (args_.sinks) {
      const float sink = args_.sinks[head(row)], max = std::max(sum.max, sink);
      const float own = std::exp(sum.max - max);
      factor = own / (sum.total * own + std::exp(sink - max));
    }
    for (int64_t e = 0; e < shape_.depth; e += kTile) {
      kernels_.affine(sums_at(out_, row, e / kTile), std::min(kTile, shape_.depth - e), factor, 0, y + e);
    }
  }

  const PagedAttentionArgs& args_;
  const PagedAttentionShape& shape_;
  const PagedTables& tables_;
  const TileOf of_;
  const RowKernels& kernels_;
  int64_t group_, rows_;
  float *queries_, *keys_, *values_, *scores_, *weights_, *part_, *out_, *panel_;
  RowSum sums_[kTileRows];
};

std::vector<TileOf> tiles_of(const PagedAttentionShape& shape, const PagedTables& tables) {
  std::vector<TileOf> tiles;
  for (const PagedSequence& sequence : tables.sequences) {
    const int64_t queries = sequence.rows * (shape.heads / shape.kv_heads);
    const int64_t count = (queries + kTileRows - 1) / kTileRows;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t first = i * queries / count;
        tiles.push_back({&sequence, head, first, (i + 1) * queries / count - first});
      }
    }
  }
  return tiles;
}

}  // namespace

void paged_attention(const PagedAttentionArgs& args) {
  const PagedAttentionShape& shape = args.shape;
  const PagedTables tables = paged_tables(args);
  write_rows(args, tables);
  for (int64_t n = 0; n < shape.tokens; ++n) {
    if (tables.slots[n] < 0)
      std::fill_n(args.y + n * shape.heads * shape.depth, shape.heads * shape.depth, 0.0f);
  }
  const std::vector<TileOf> tiles = tiles_of(shape, tables);
  parallel_tasks(static_cast<int64_t>(tiles.size()), Tile::workspace_floats(shape),
                 [&](int64_t index, float* workspace) { Tile(args, tables, tiles[index], workspace).run(); });
}

}  // namespace spark::cpu
