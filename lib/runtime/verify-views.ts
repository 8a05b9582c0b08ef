// verify-views.ts: elementwise operations, reductions, moves and pools among the cases of `dgx-spark verify`.
import type { BinaryFn, ReduceFn, UnaryFn } from './tensor-kernel-args.js'
import { f32, type VerifyCase, type VerifySizes, values, verifyCase } from './verify-values.js'

/** Functions of a math library: two units in the last place, relative to the largest result. */
const libraryTolerance = 2.5e-7

/** Each kernel on views, in f32 and i64. */
export function viewCases({ tokens, rows, cols }: VerifySizes): VerifyCase[] {
  const shape = [tokens, rows, cols]
  const [contiguous, transposed] = [
    [rows * cols, cols, 1],
    [1, tokens, tokens * rows],
  ]
  const count = tokens * rows * cols
  const [a, b] = [values(count, 31), values(count, 32)]
  const integers = BigInt64Array.from(a, value => BigInt(Math.round(1000 * value)))
  const unary = (fn: UnaryFn, tolerance: number) =>
    verifyCase('unary', fn, ['y'], tolerance, () => ({ fn, dtype: 'f32', count, x: a, y: f32(count) }))
  const binary = (fn: BinaryFn, tolerance: number) =>
    verifyCase('binary', fn, ['y'], tolerance, () => ({
      ...{ fn, dtype: 'f32' as const, shape, aStrides: contiguous, bStrides: transposed, a, b },
      y: f32(count),
    }))
  const reduce = (fn: ReduceFn) =>
    verifyCase('reduce', fn, ['y'], 1e-6, () => ({
      ...{ fn, dtype: 'f32' as const, shape: [rows], reduced: [tokens, cols], strides: [cols] },
      reducedStrides: [rows * cols, 1],
      x: a,
      y: f32(rows),
    }))
  return [
    ...(['abs', 'relu', 'floor', 'sign'] as const).map(fn => unary(fn, 0)),
    ...(['exp', 'erf', 'tanh', 'sigmoid', 'gelu', 'softplus'] as const).map(fn =>
      unary(fn, libraryTolerance),
    ),
    ...(['add', 'mul', 'div', 'max', 'prelu', 'relu_grad'] as const).map(fn => binary(fn, 0)),
    ...(['gelu_grad', 'silu_grad'] as const).map(fn => binary(fn, 2 * libraryTolerance)),
    ...(['sum', 'mean', 'max', 'min', 'sum_square'] as const).map(reduce),
    verifyCase('copyStrided', 'f32', ['dst'], 0, () => ({
      ...{ dtype: 'f32' as const, shape, srcOffset: 0, dstOffset: 0 },
      ...{ srcStrides: transposed, dstStrides: contiguous, src: a, dst: f32(count) },
    })),
    verifyCase('cast', 'i64 to f32', ['dst'], 0, () => ({
      ...{ srcDtype: 'i64' as const, dstDtype: 'f32' as const, count, saturate: false },
      ...{ src: integers, dst: f32(count) },
    })),
  ]
}
