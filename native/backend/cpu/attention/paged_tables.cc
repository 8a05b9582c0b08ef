// paged_tables.cc: checks of the tables of attention over blocks.
#include "backend/cpu/attention/paged_tables.h"

#include "core/error.h"

namespace spark::cpu {
namespace {

template <typename... Parts>
void check(bool fits, const Parts&... what) {
  if (!fits) throw Error("ERR_ARGUMENT", message(what...));
}

class Reader {
 public:
  explicit Reader(const PagedAttentionArgs& args) : args_(args), shape_(args.shape) {
    tables_.slots.assign(shape_.tokens, -1);
  }

  PagedTables read() {
    int64_t first = args_.starts[0];
    check(first >= 0, "starts[0] is ", first, "; rows are counted from 0");
    for (int64_t b = 0; b < shape_.sequences; ++b) {
      const int64_t end = args_.starts[b + 1];
      check(end >= first && end <= shape_.tokens, "starts[", b + 1, "] is ", end, "; rows go on from ", first,
            " to ", shape_.tokens, " at most");
      read_sequence(b, first, end);
      first = end;
    }
    return std::move(tables_);
  }

 private:
  void read_sequence(int64_t b, int64_t first, int64_t end) {
    const int64_t past = args_.past[b], table = static_cast<int64_t>(tables_.blocks.size());
    check(past >= 0, "past[", b, "] is ", past, "; it must be at least 0");
    int64_t rows = 0;
    for (int64_t n = first; n < end; ++n) {
      if (read_given_slot(n)) rows = n - first + 1;
    }
    if (rows == 0) return;
    const int64_t last = past + rows - 1;
    check(last / shape_.block_size < shape_.table, "sequence ", b, " has ", last + 1,
          " positions, more than the table's ", shape_.table, " blocks of ", shape_.block_size);
    const int64_t begin = first_seen(args_, past) / shape_.block_size;
    tables_.blocks.resize(table + last / shape_.block_size + 1, 0);
    for (int64_t i = begin; i <= last / shape_.block_size; ++i) {
      const int32_t block = args_.block[b * shape_.table + i];
      check(block >= 0 && block < shape_.blocks, "block[", b, ", ", i, "] is ", block, "; there are ",
            shape_.blocks, " blocks");
      tables_.blocks[table + i] = block;
    }
    tables_.sequences.push_back({first, rows, past, table});
    if (args_.slots) return;
    for (int64_t n = first; n < end; ++n) {
      const int64_t position = past + n - first;
      tables_.slots[n] = tables_.blocks[table + position / shape_.block_size] * shape_.block_size +
                         position % shape_.block_size;
    }
  }

  // Whether row n is none of padding.
  bool read_given_slot(int64_t n) {
    if (!args_.slots) return true;
    const int64_t slot = args_.slots[n], count = shape_.blocks * shape_.block_size;
    check(slot >= -1 && slot < count, "slots[", n, "] is ", slot, "; the caches have ", count, " tokens");
    tables_.slots[n] = slot;
    return slot >= 0;
  }

  const PagedAttentionArgs& args_;
  const PagedAttentionShape& shape_;
  PagedTables tables_;
};

}  // namespace

PagedTables paged_tables(const PagedAttentionArgs& args) { return Reader(args).read(); }

}  // namespace spark::cpu
