// matmul.ts: shapes of matrix products.
import { sparkDomain } from '../graph.js'
import { type Rule, type ShapeContext, showShape, tensorOrUnknown } from './context.js'
import { compatible, type Shape } from './dimensions.js'
import { expectBroadcast } from './operands.js'
import { f32, type OperatorTable } from './row.js'

export function matMul(ctx: ShapeContext, left: number, right: number): Shape | undefined {
  return matMulOf(ctx, ctx.shape(left), ctx.shape(right))
}

/** Shape of a product of stacks of matrices, where one dimension is a vector. */
export function matMulOf(ctx: ShapeContext, a: Shape | undefined, b: Shape | undefined): Shape | undefined {
  if (!a || !b) return undefined
  if (a.length === 0 || b.length === 0) throw ctx.fail('an operand has no dimensions')
  const [rows, inner] = a.length === 1 ? [[], a[0]!] : [[a.at(-2)!], a.at(-1)!]
  const [columns, other] = b.length === 1 ? [[], b[0]!] : [[b.at(-1)!], b.at(-2)!]
  if (!compatible(inner, other))
    throw ctx.fail(`${showShape(a)} times ${showShape(b)}: ${inner} is not ${other}`)
  return [...ctx.broadcast([a.slice(0, -2), b.slice(0, -2)])!, ...rows, ...columns]
}

function gemm(ctx: ShapeContext): Shape | undefined {
  const [a, b] = [ctx.shape(0), ctx.shape(1)]
  if (!a || !b) return undefined
  if (a.length !== 2 || b.length !== 2)
    throw ctx.fail(`${showShape(a)} times ${showShape(b)} are not matrices`)
  const [rows, inner] = ctx.int('transA') ? [a[1]!, a[0]!] : [a[0]!, a[1]!]
  const [other, columns] = ctx.int('transB') ? [b[1]!, b[0]!] : [b[0]!, b[1]!]
  if (!compatible(inner, other))
    throw ctx.fail(`${showShape(a)} times ${showShape(b)}: ${inner} is not ${other}`)
  expectBroadcast(ctx, 2, 'C', [rows, columns])
  return [rows, columns]
}

export const transposedIf = (shape: Shape | undefined, swap: boolean): Shape | undefined =>
  shape && swap ? [...shape.slice(0, -2), shape.at(-1)!, shape.at(-2)!] : shape

const fusedMatMul: Rule = ctx => {
  const [left, right] = [ctx.int('transA') !== 0, ctx.int('transB') !== 0]
  return f32(matMulOf(ctx, transposedIf(ctx.shape(0), left), transposedIf(ctx.shape(1), right)))
}

const fusedLinear: Rule = ctx => {
  const swap = ctx.int('transB') !== 0
  return [
    tensorOrUnknown(
      ctx.commonDtype([0, 1, 2, 3, 4]),
      matMulOf(ctx, ctx.shape(0), transposedIf(ctx.shape(1), swap)),
    ),
  ]
}

/** Rows of matrix products. */
export const matmuls: OperatorTable = {
  '': {
    MatMul: { shape: ctx => [tensorOrUnknown(ctx.commonDtype([0, 1]), matMul(ctx, 0, 1))] },
    Gemm: { shape: ctx => [tensorOrUnknown(ctx.commonDtype([0, 1, 2]), gemm(ctx))] },
    Det: { shape: ctx => [tensorOrUnknown(ctx.dtype(0), ctx.shape(0)?.slice(0, -2))] },
  },
  [sparkDomain]: {
    FusedMatMul: { shape: fusedMatMul },
    FusedLinear: { shape: fusedLinear },
  },
}
