// matmul.ts: gradients of matrix products.
import { float, floatOf, int, intOf } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientRule, GradientTable } from './context.js'

/** y = alpha · op(a) · op(b) + beta · c */
const gemm: GradientRule = ctx => {
  const dy = ctx.dy()
  const [a, b, c] = [ctx.input(0), ctx.input(1), ctx.input(2)]
  const [transA, transB] = [intOf(ctx.node, 'transA'), intOf(ctx.node, 'transB')]
  const product = (left: string, transLeft: number, right: string, transRight: number): string =>
    ctx.add('Gemm', [left, right], {
      alpha: float(floatOf(ctx.node, 'alpha')),
      transA: int(transLeft),
      transB: int(transRight),
    })
  if (ctx.wants(0)) ctx.give(0, transA ? product(b, transB, dy, 1) : product(dy, 0, b, 1 - transB))
  if (ctx.wants(1)) ctx.give(1, transB ? product(dy, 1, a, transA) : product(a, 1 - transA, dy, 0))
  if (!c || !ctx.wants(2)) return
  const beta = floatOf(ctx.node, 'beta')
  const scaled = beta === 1 ? dy : ctx.add('Mul', [dy, ctx.constant(beta)])
  ctx.giveSummed(2, scaled)
}

/** Batches of matrices, a vector being a row on the left and a column on the right; what was repeated gets the sum. */
const matmul: GradientRule = ctx => {
  const [row, column] = [ctx.rank(0) === 1, ctx.rank(1) === 1]
  const raised = (value: string, axis: number): string => ctx.add('Unsqueeze', [value, ctx.constant([axis])])
  const [a, b] = [
    row ? raised(ctx.input(0), 0) : ctx.input(0),
    column ? raised(ctx.input(1), 1) : ctx.input(1),
  ]
  const whole = column ? raised(ctx.dy(), -1) : ctx.dy()
  const dy = row ? raised(whole, -2) : whole
  const product = (left: string, right: string, transposed: 'transA' | 'transB'): string =>
    ctx.add('FusedMatMul', [left, right], { [transposed]: int(1) }, sparkDomain)
  if (ctx.wants(0)) ctx.giveSummed(0, product(dy, b, 'transB'))
  if (!ctx.wants(1)) return
  const db = product(a, dy, 'transA')
  ctx.giveSummed(1, column ? ctx.add('Squeeze', [db, ctx.constant([-1])]) : db)
}

/** y = op(a)·op(b), batches of matrices; what was repeated gets the sum. */
const fusedMatmul: GradientRule = ctx => {
  const [dy, a, b] = [ctx.dy(), ctx.input(0), ctx.input(1)]
  const [transA, transB] = [intOf(ctx.node, 'transA'), intOf(ctx.node, 'transB')]
  const product = (left: string, transLeft: number, right: string, transRight: number): string =>
    ctx.add('FusedMatMul', [left, right], { transA: int(transLeft), transB: int(transRight) }, sparkDomain)
  if (ctx.wants(0)) ctx.giveSummed(0, transA ? product(b, transB, dy, 1) : product(dy, 0, b, 1 - transB))
  if (ctx.wants(1)) ctx.giveSummed(1, transB ? product(dy, 1, a, transA) : product(a, 1 - transA, dy, 0))
}

/** Gradients of matrix products. */
export const matmuls: GradientTable = {
  '': { Gemm: gemm, MatMul: matmul },
  [sparkDomain]: { FusedMatMul: fusedMatmul },
}
