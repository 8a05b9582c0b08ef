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

// Some of the queries of a sequence that meet one head of keys: query i is that of its row i / group, and of
// head i mod group of those that share the head of keys.
struct TileOf {
  const PagedSequence* sequence;
  int64_t kv_head, first, count;

  int64_t token(int64_t row, int64_t group) const { return sequence->first + (first + row) / group; }
  int64_t head(int64_t row, int64_t group) const { return kv_head * group + (first + row) % group; }
  int64_t position(int64_t row, int64_t group) const { return sequence->past + (first + row) / group; }
};

// What a row has summed over some positions: the largest score and Σ e^(w − max).
struct RowSum {
  float max = -kInfinity, total = 0;
};

// Adds sums over a chunk, of which part(e) has those of the values from e on, to those before, in dense rows.
template <typename Part>
void merge(RowSum& sum, float* out, int64_t depth, const RowSum& chunk, const Part& part) {
  if (chunk.total == 0) return;
  const float max = std::max(sum.max, chunk.max);
  const float before = sum.total == 0 ? 0 : std::exp(sum.max - max), now = std::exp(chunk.max - max);
  for (int64_t e = 0; e < depth; e += kTile) {
    const float* from = part(e);
    const int64_t count = std::min(kTile, depth - e);
    if (before == 0) {
      for (int64_t i = 0; i < count; ++i) out[e + i] = from[i] * now;
    } else {
      for (int64_t i = 0; i < count; ++i) out[e + i] = out[e + i] * before + from[i] * now;
    }
  }
  sum = {max, sum.total * before + chunk.total * now};
}

// The queries of a tile, and their sums over a chunk of positions.
class Tile {
 public:
  Tile(const PagedAttentionArgs& args, const PagedTables& tables, const TileOf& of, float* workspace)
      : args_(args), shape_(args.shape), tables_(tables), of_(of), kernels_(kernels().rows) {
    group_ = shape_.heads / shape_.kv_heads;
    queries_ = workspace;
    lines_ = queries_ + left_floats(shape_.depth);
    scores_ = lines_ + kPanelRows * shape_.depth;
    weights_ = scores_ + sums_floats(kBlock);
    part_ = weights_ + left_floats(kBlock);
    panel_ = part_ + sums_floats(shape_.depth);
    for (int64_t row = 0; row < of.count; ++row) {
      const float* query =
          args.query + (of.token(row, group_) * shape_.heads + of.head(row, group_)) * shape_.depth;
      prepare_head(args, query, args.query_norm, of.token(row, group_), lines_);
      put_row(lines_, shape_.depth, row, queries_);
    }
  }

  static int64_t workspace_floats(const PagedAttentionShape& shape) {
    return left_floats(shape.depth) + kPanelRows * shape.depth + sums_floats(kBlock) + left_floats(kBlock) +
           sums_floats(shape.depth) + kPanelFloats;
  }

  // Sums over the positions of a chunk that any row sees.
  void run(int64_t chunk) {
    const int64_t seen = first_seen(args_, of_.position(0, group_));
    const int64_t last = of_.position(of_.count - 1, group_);
    const int64_t s = std::max(chunk * kPagedChunk, seen);
    const int64_t end = std::min((chunk + 1) * kPagedChunk, last + 1);
    each_panel(key_cache(args_), s, end, [&](const HeadRows& keys, int64_t at) {
      multiply_rows(queries_, of_.count, keys, panel_, scores_ + at);
    });
    for (int64_t row = 0; row < of_.count; ++row) sums_[row] = weigh(row, s, end - s);
    for (int64_t e = 0; e < shape_.depth; e += kTile) {
      const int64_t panels = (std::min(kTile, shape_.depth - e) + kPanelRows - 1) / kPanelRows;
      for (int64_t row = 0; row < of_.count; ++row) {
        std::fill_n(sums_at(part_, row, e / kTile), panels * kPanelRows, 0.0f);
      }
    }
    each_panel(value_cache(args_), s, end, [&](const HeadRows& values, int64_t at) {
      multiply_columns(weights_ + at, of_.count, values, panel_, part_);
    });
  }

  const RowSum& sum(int64_t row) const { return sums_[row]; }
  const float* part(int64_t row, int64_t e) const { return sums_at(part_, row, e / kTile); }

 private:
  // Calls body(rows, position − s) for the positions [s, end) of a cache in panels of kPanelRows, counted
  // from position 0: a sum over values is a chain of additions in each, so that blocks of any size give the
  // same.
  template <typename Body>
  void each_panel(const PagedCache& cache, int64_t s, int64_t end, const Body& body) const {
    const int64_t size = shape_.block_size;
    const int32_t* blocks = tables_.blocks.data() + of_.sequence->table;
    const auto token_at = [&](int64_t position) { return blocks[position / size] * size + position % size; };
    for (int64_t from = s, next; from < end; from = next) {
      next = std::min(end, (from / kPanelRows + 1) * kPanelRows);
      for (int64_t position = next; position < std::min(end, next + kPanelRows); ++position) {
        cache.prefetch(token_at(position), of_.kv_head);
      }
      if (cache.dtype == DType::kF32 && from / size == (next - 1) / size) {
        body(HeadRows{cache.row(token_at(from), of_.kv_head), cache.heads * cache.depth, 0, next - from,
                      cache.depth},
             from - s);
        continue;
      }
      for (int64_t position = from; position < next; ++position) {
        cache.load(token_at(position), of_.kv_head, lines_ + (position - from) * cache.depth);
      }
      body(HeadRows{lines_, cache.depth, 0, next - from, cache.depth}, from - s);
    }
  }

  // The scores of a row with positions [s, s + count) become weights in units of e^max.
  RowSum weigh(int64_t row, int64_t s, int64_t count) {
    float *scores = scores_ + row * kTile, *weights = weights_ + row * kLine;
    const int64_t position = of_.position(row, group_);
    const int64_t begin = std::clamp<int64_t>(first_seen(args_, position) - s, 0, count);
    const int64_t end = std::clamp<int64_t>(position + 1 - s, begin, count);
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

  const PagedAttentionArgs& args_;
  const PagedAttentionShape& shape_;
  const PagedTables& tables_;
  const TileOf of_;
  const RowKernels& kernels_;
  int64_t group_;
  float *queries_, *lines_, *scores_, *weights_, *part_, *panel_;
  RowSum sums_[kTileRows];
};

// y of a head of a row from its sums.
void store(const PagedAttentionArgs& args, bool is_padding, int64_t head, const RowSum& sum, const float* out,
           float* y) {
  float factor = sum.total == 0 || is_padding ? 0 : 1 / sum.total;
  if (factor != 0 && args.sinks) {
    const float sink = args.sinks[head], max = std::max(sum.max, sink), own = std::exp(sum.max - max);
    factor = own / (sum.total * own + std::exp(sink - max));
  }
  if (factor == 0) {
    std::fill_n(y, args.shape.depth, 0.0f);
  } else {
    kernels().rows.affine(out, args.shape.depth, factor, 0, y);
  }
}

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

// All tiles of a call.
class Attention {
 public:
  Attention(const PagedAttentionArgs& args, const PagedTables& tables)
      : args_(args), shape_(args.shape), tables_(tables), tiles_(tiles_of(args.shape, tables)) {
    group_ = shape_.heads / shape_.kv_heads;
    for (const TileOf& tile : tiles_) {
      chunks_ = std::max(chunks_, end_of(tile) - begin_of(tile));
      rows_ = std::max(rows_, tile.count);
    }
  }

  void run() const {
    const int64_t count = static_cast<int64_t>(tiles_.size());
    // Where tiles are few, threads share out their chunks.
    count<2 * thread_count() && chunks_> 1 ? run_chunks(count) : run_tiles(count);
  }

 private:
  int64_t begin_of(const TileOf& tile) const {
    return first_seen(args_, tile.position(0, group_)) / kPagedChunk;
  }
  int64_t end_of(const TileOf& tile) const { return tile.position(tile.count - 1, group_) / kPagedChunk + 1; }

  // A thread merges the chunks of its tile as they come.
  void run_tiles(int64_t count) const {
    const int64_t own = Tile::workspace_floats(shape_), depth = shape_.depth;
    parallel_tasks(count, own + kTileRows * depth, [&](int64_t index, float* workspace) {
      const TileOf& of = tiles_[index];
      Tile tile(args_, tables_, of, workspace);
      float* out = workspace + own;
      RowSum sums[kTileRows];
      for (int64_t chunk = begin_of(of); chunk < end_of(of); ++chunk) {
        tile.run(chunk);
        for (int64_t row = 0; row < of.count; ++row) {
          merge(sums[row], out + row * depth, depth, tile.sum(row),
                [&](int64_t e) { return tile.part(row, e); });
        }
      }
      for (int64_t row = 0; row < of.count; ++row) finish(of, row, sums[row], out + row * depth);
    });
  }

  // The sums of all chunks of all tiles, and then those of their rows.
  void run_chunks(int64_t count) const {
    const int64_t depth = shape_.depth, pitch = depth + 2;
    const Scratch parts(count * chunks_ * rows_ * pitch);
    const auto part_of = [&](int64_t index, int64_t chunk, int64_t row) {
      return parts.data() + ((index * chunks_ + chunk) * rows_ + row) * pitch;
    };
    parallel_tasks(count * chunks_, Tile::workspace_floats(shape_), [&](int64_t task, float* workspace) {
      const int64_t index = task / chunks_, chunk = task % chunks_;
      const TileOf& of = tiles_[index];
      if (begin_of(of) + chunk >= end_of(of)) return;
      Tile tile(args_, tables_, of, workspace);
      tile.run(begin_of(of) + chunk);
      for (int64_t row = 0; row < of.count; ++row) {
        float* part = part_of(index, chunk, row);
        part[0] = tile.sum(row).max;
        part[1] = tile.sum(row).total;
        for (int64_t e = 0; e < depth; e += kTile) {
          std::copy_n(tile.part(row, e), std::min(kTile, depth - e), part + 2 + e);
        }
      }
    });
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t index = begin; index < end; ++index) {
        const TileOf& of = tiles_[index];
        for (int64_t row = 0; row < of.count; ++row) {
          RowSum sum;
          float* out = part_of(index, 0, row) + 2;
          for (int64_t chunk = 0; chunk < end_of(of) - begin_of(of); ++chunk) {
            const float* part = part_of(index, chunk, row);
            merge(sum, out, depth, {part[0], part[1]}, [&](int64_t e) { return part + 2 + e; });
          }
          finish(of, row, sum, out);
        }
      }
    });
  }

  void finish(const TileOf& of, int64_t row, const RowSum& sum, const float* out) const {
    const int64_t n = of.token(row, group_), head = of.head(row, group_);
    store(args_, tables_.slots[n] < 0, head, sum, out,
          static_cast<float*>(args_.y) + (n * shape_.heads + head) * shape_.depth);
  }

  const PagedAttentionArgs& args_;
  const PagedAttentionShape& shape_;
  const PagedTables& tables_;
  const std::vector<TileOf> tiles_;
  int64_t group_, chunks_ = 0, rows_ = 0;  // the most chunks and rows of a tile
};

}  // namespace

void paged_attention(const PagedAttentionArgs& args) {
  const PagedAttentionShape& shape = args.shape;
  const PagedTables tables = paged_tables(args);
  write_rows(args, tables);
  const int64_t width = shape.heads * shape.depth;
  for (int64_t n = 0; n < shape.tokens; ++n) {
    if (tables.slots[n] < 0) std::fill_n(static_cast<float*>(args.y) + n * width, width, 0.0f);
  }
  Attention(args, tables).run();
}

}  // namespace spark::cpu
