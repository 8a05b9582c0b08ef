// dora.cc: launchers of a DoRA layer, forward and backward.
#include <optional>

#include "backend/cuda/cuda.h"
#include "backend/cuda/gemm/product.h"
#include "backend/cuda/gemm/product_mma.h"
#include "backend/cuda/runtime/launch.h"

namespace spark::cuda {
namespace {

constexpr int kThreads = 256;

Lines scaled(Lines lines, float factor) {
  lines.factor = factor;
  return lines;
}

Lines masked(Lines lines, const float* mask) {
  lines.mask = mask;
  return lines;
}

// Multiplies by k_scale[k] + shift.
Lines scaled(Lines lines, const float* k_scale, float shift = 0) {
  lines.k_scale = k_scale;
  lines.k_shift = shift;
  return lines;
}

void add_segment(ProductArgs& product, int64_t depth, Lines a, Lines b) {
  product.depth2 = depth;
  product.a2 = a;
  product.b2 = b;
}

// out[N, M] instead of [M, N].
void transpose(ProductArgs& product) {
  product.epilogue.row_stride = 1;
  product.epilogue.col_stride = product.rows;
}

// g = A·Aᵀ [R, R].
void gram(const LowRank& low_rank, int64_t in, float* g) {
  const Weight a = as_weight(low_rank.a, low_rank.rank, in);
  launch_rows(with_rows(low_rank.rank, rows_of(low_rank.a, in), a, g));
}

// [x | s·xa] · [W | B]ᵀ in one pass; gain and bias when the sum is complete.
void forward(const DoraForwardArgs& args, Lines low_rank, const uint16_t* packed_x) {
  const int64_t in = args.weight.cols, rank = args.low_rank.rank;
  ProductArgs product = with_rows(args.tokens, rows_of(args.x, in), args.weight, args.y);
  add_segment(product, rank, low_rank, rows_of(args.low_rank.b, rank));
  product.epilogue.copy = args.z;
  product.epilogue.col_factor = args.gain;
  product.epilogue.bias = args.bias;
  product.compute = args.compute;
  product.packed_a = packed_x;
  launch_rows(product);
}

// With dropout the base path sees x and the adapter path d = mask ∘ x: two base products.
void forward_dropout(const DoraForwardArgs& args, Lines low_rank) {
  const int64_t in = args.weight.cols, out = args.weight.rows, rank = args.low_rank.rank;
  LinearArgs plain{};
  plain.weight = args.weight;
  plain.tokens = args.tokens;
  plain.x = args.x;
  plain.bias = args.bias;
  plain.y = args.y;
  plain.compute = args.compute;
  linear(plain);

  ProductArgs base = with_rows(args.tokens, masked(rows_of(args.x, in), args.mask), args.weight, args.y);
  base.epilogue.add = true;
  base.epilogue.copy = args.z;
  base.epilogue.col_factor = args.gain;
  base.epilogue.col_shift = -1;
  base.compute = args.compute;
  launch_rows(base);

  ProductArgs adapter = with_rows(args.tokens, low_rank, as_weight(args.low_rank.b, out, rank), args.y);
  adapter.epilogue.add = true;
  adapter.epilogue.copy = args.z;
  adapter.epilogue.copy_add = true;
  adapter.epilogue.col_factor = args.gain;
  adapter.compute = args.compute;
  launch_rows(adapter);
}

// db = s · dzᵀ·xa and da = s · qᵀ·d, the latter as its transpose: only the left operand takes a mask.
void factors(const DoraBackwardArgs& args, const float* q) {
  const int64_t in = args.weight.cols, out = args.weight.rows, rank = args.low_rank.rank;
  ProductArgs db =
      with_columns(out, columns_of(args.dy, out), as_weight(args.xa, args.tokens, rank), args.db);
  db.epilogue.factor = args.low_rank.scale;
  db.epilogue.row_factor = args.gain;
  db.compute = args.compute;
  launch_columns(db);

  ProductArgs da =
      with_columns(in, masked(columns_of(args.x, in), args.mask), as_weight(q, args.tokens, rank), args.da);
  transpose(da);
  da.epilogue.factor = args.low_rank.scale;
  da.compute = args.compute;
  launch_columns(da);
}

// What the norm adds: db −= s · c ∘ ([W | s·B] · [A | G]ᵀ), as its transpose, and
// da −= s · [(c ∘ B)ᵀ | s·P] · [Wᵀ | Aᵀ]ᵀ with P = Bᵀ·(c ∘ B).
void norm_gradient(const DoraBackwardArgs& args) {
  const int64_t in = args.weight.cols, out = args.weight.rows, rank = args.low_rank.rank;
  const auto& [_, scale, a, b] = args.low_rank;
  const Scratch c(out * sizeof(float)), square(rank * rank * sizeof(float));
  launch("dora", "dora_backward_norm_f32", Grid{ceil_div(out, kThreads)}, Threads{kThreads}, 0, args.gain,
         static_cast<const float*>(args.dmagnitude), args.norm, out, c.as<float>());

  gram(args.low_rank, in, square.as<float>());
  ProductArgs db = with_rows(rank, rows_of(a, in), args.weight, args.db);
  add_segment(db, rank, scaled(rows_of(square.as<float>(), rank), scale), rows_of(b, rank));
  transpose(db);
  db.epilogue.add = true;
  db.epilogue.factor = -scale;
  db.epilogue.col_factor = c.as<float>();
  launch_rows(db);

  const Lines weighted_b = scaled(columns_of(b, rank), c.as<float>());
  launch_columns(with_columns(rank, weighted_b, as_weight(b, out, rank), square.as<float>()));
  ProductArgs da = with_columns(rank, weighted_b, args.weight, args.da);
  add_segment(da, rank, scaled(rows_of(square.as<float>(), rank), scale), columns_of(a, in));
  da.epilogue.add = true;
  da.epilogue.factor = -scale;
  launch_columns(da);
}

// dx = [dz | s·q] · [W | A] with dz = dy ∘ gain; with dropout gain − 1 and the mask, then the base path,
// dy·W.
void input_gradient(const DoraBackwardArgs& args, const float* q, const uint16_t* packed_dz) {
  const int64_t in = args.weight.cols, out = args.weight.rows, rank = args.low_rank.rank;
  const Lines dy = rows_of(args.dy, out);
  ProductArgs product =
      with_columns(args.tokens, scaled(dy, args.gain, args.mask ? -1 : 0), args.weight, args.dx);
  add_segment(product, rank, scaled(rows_of(q, rank), args.low_rank.scale), columns_of(args.low_rank.a, in));
  product.epilogue.mask = args.mask;
  product.compute = args.compute;
  product.packed_a = packed_dz;
  launch_columns(product);
  if (!args.mask) return;
  ProductArgs base = with_columns(args.tokens, dy, args.weight, args.dx);
  base.epilogue.add = true;
  base.compute = args.compute;
  launch_columns(base);
}

}  // namespace

void dora_forward(const DoraForwardArgs& args) {
  const int64_t in = args.weight.cols, rank = args.low_rank.rank;
  const Lines d = masked(rows_of(args.x, in), args.mask);
  ProductArgs xa = with_rows(args.tokens, d, as_weight(args.low_rank.a, rank, in), args.xa);
  xa.compute = args.compute == Compute::kNVFP4 ? Compute::kBF16 : args.compute;
  std::optional<Packed> packed;  // by both products
  if (xa.compute != Compute::kF32) packed.emplace(number_of(xa.compute), d, args.tokens, in);
  xa.packed_a = packed ? packed->data() : nullptr;
  launch_rows(xa);
  const Lines low_rank = scaled(rows_of(args.xa, rank), args.low_rank.scale);
  if (args.mask) {
    forward_dropout(args, low_rank);
  } else {
    forward(args, low_rank, xa.packed_a);
  }
}

void dora_backward(const DoraBackwardArgs& args) {
  const int64_t out = args.weight.rows, rank = args.low_rank.rank, tokens = args.tokens;
  const bool row_scaled = args.weight.dtype == DType::kF8E4M3 || args.weight.dtype == DType::kI8;
  const Lines dz = scaled(rows_of(args.dy, out), args.gain);
  std::optional<Packed> packed;  // dz, where dx takes it as it is, too
  if (args.dx && !args.mask && !row_scaled && args.compute != Compute::kF32) {
    packed.emplace(number_of(args.compute), dz, tokens, out);
  }
  const uint16_t* packed_dz = packed ? packed->data() : nullptr;
  const Scratch q(tokens * rank * sizeof(float));  // dz·B
  ProductArgs dzb = with_columns(tokens, dz, as_weight(args.low_rank.b, out, rank), q.as<float>());
  dzb.compute = args.compute;
  dzb.packed_a = packed_dz;
  launch_columns(dzb);
  launch_column_sums(args.dy, args.z, tokens, out, args.norm, args.dmagnitude);
  if (args.dbias) launch_column_sums(args.dy, nullptr, tokens, out, nullptr, args.dbias);
  factors(args, q.as<float>());
  if (args.exact_norm) norm_gradient(args);
  if (args.dx) input_gradient(args, q.as<float>(), packed_dz);
}

}  // namespace spark::cuda
