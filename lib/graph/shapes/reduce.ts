// reduce.ts: shapes of reductions, cumulative sums, and sums over ranks.
import { isWideInteger } from '../../core/dtype.js'
import { add, areNumbers, maximum, minimum, multiply, type Size } from '../../core/size.js'
import { sparkDomain } from '../graph.js'
import { type Rule, type ShapeContext, tensorOrUnknown } from './context.js'
import { type Shape, unknownShape } from './dimensions.js'
import { dtypeOf, smallShape } from './known-values.js'
import { single } from './operands.js'
import { type OperatorTable, sameAs, sameAsFirst, type ValueRule } from './row.js'

/** Shape after reducing `axes` (all when undefined) of the first input. */
export function reduced(
  ctx: ShapeContext,
  axes: readonly number[] | undefined,
  keep: boolean,
): Shape | undefined {
  const shape = ctx.shape(0)
  if (!shape) return axes === undefined && !keep ? [] : undefined
  const gone = new Set(axes?.map(axis => ctx.axis(axis, shape.length)) ?? shape.keys())
  return keep ? shape.map((dim, i) => (gone.has(i) ? 1 : dim)) : shape.filter((_, i) => !gone.has(i))
}

const reduce: Rule = ctx => {
  const keep = ctx.int('keepdims') === 1
  const shape = ctx.shape(0)
  const axes = ctx.numbers(1)
  const list = axes?.length === 0 ? undefined : axes
  if (ctx.has(1) && !axes) {
    return [tensorOrUnknown(ctx.dtype(0), keep && shape ? unknownShape(shape.length) : undefined)]
  }
  if (list === undefined && ctx.int('noop_with_empty_axes') === 1) return [ctx.type(0)]
  return [tensorOrUnknown(ctx.dtype(0), reduced(ctx, list, keep))]
}

const reducedValues =
  (combine: (a: Size, b: Size) => Size): ValueRule =>
  (ctx, [type]) => {
    const [sizes, shape] = [ctx.sizes(0), smallShape(type)]
    if (!sizes?.length || !shape || shape.some(size => size !== 1)) return []
    if (!areNumbers(sizes) && !isWideInteger(dtypeOf(type))) return []
    return [{ shape, elements: [sizes.reduce(combine)] }]
  }

const added = (a: Size, b: Size): Size => add(a, b)
const multiplied = (a: Size, b: Size): Size => multiply(a, b)

/** Rows of reductions. */
export const reductions: OperatorTable = {
  '': {
    ReduceL1: { shape: reduce, integers: [1] },
    ReduceL2: { shape: reduce, integers: [1] },
    ReduceLogSum: { shape: reduce, integers: [1] },
    ReduceLogSumExp: { shape: reduce, integers: [1] },
    ReduceMax: { shape: reduce, integers: [1], values: reducedValues(maximum) },
    ReduceMean: { shape: reduce, integers: [1] },
    ReduceMin: { shape: reduce, integers: [1], values: reducedValues(minimum) },
    ReduceProd: { shape: reduce, integers: [1], values: reducedValues(multiplied) },
    ReduceSum: { shape: reduce, integers: [1], values: reducedValues(added) },
    ReduceSumSquare: { shape: reduce, integers: [1] },
    CumProd: { shape: sameAsFirst, integers: [1] },
    CumSum: { shape: sameAsFirst, check: single('axis'), integers: [1] },
  },
  [sparkDomain]: {
    AllReduce: { shape: sameAs(0) },
    SumLike: { shape: sameAs(1) },
    ReduceSumGrad: { shape: sameAs(1) },
    ReduceMeanGrad: { shape: sameAs(1) },
    ReduceExtremeGrad: { shape: sameAs(1) },
  },
}
