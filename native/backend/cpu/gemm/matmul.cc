// matmul.cc: batched matmul of strided operands.
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/product.h"
namespace spark::cpu {
namespace {

// Lines of a are its rows, lines of b its columns; `k` is the stride along them.
Operand lines(const float* data, int64_t line, int64_t k) {
  return k == 1 ? rows_of(data, line) : columns_of(data, k);
}

}  // namespace

void matmul(const MatmulArgs& args) {
  const Matrices &a = args.a, &b = args.b;
  // A side of a single line or a single term may have any stride there.
  const int64_t a_k = args.k == 1 ? 1 : a.col, b_k = args.k == 1 ? 1 : b.row;
  const auto segment = [&](int64_t product) -> Segment {
    const int64_t i = product / args.inner, j = product % args.inner;
    return {lines(a.data + i * a.outer + j * a.inner, a.row, a_k),
            lines(b.data + i * b.outer + j * b.inner, b.col, b_k), args.k};
  };
  products(args.outer * args.inner, args.m, args.n, segment,
           [&](int64_t product, int64_t m, int64_t n, int64_t count, const float* sums) {
             float* y = args.y + product / args.inner * args.y_outer + product % args.inner * args.y_inner +
                        m * args.y_row + n;
             for (int64_t at = 0; at < count; ++at) y[at] = args.alpha * sums[at];
           });
}

}  // namespace spark::cpu
