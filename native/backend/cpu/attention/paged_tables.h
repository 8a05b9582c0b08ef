// paged_tables.h: the tables of attention over blocks, checked and copied: nothing that another thread writes
// into them later leads out of an array.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/paged_args.h"

namespace spark::cpu {

// Rows [first, first + rows) of a call, behind `past` positions.
struct PagedSequence {
  int64_t first, rows, past;
  int64_t table;  // its blocks in PagedTables::blocks, from that of position 0 on
};

struct PagedTables {
  std::vector<PagedSequence> sequences;  // those that have rows
  std::vector<int32_t> blocks;           // inside of the caches, for all positions that a row sees
  std::vector<int64_t> slots;            // [N]: the token of the caches that a row writes; −1: padding
};

// Throws ERR_ARGUMENT where an element leads out of an array.
PagedTables paged_tables(const PagedAttentionArgs& args);

}  // namespace spark::cpu
