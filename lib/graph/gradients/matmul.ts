// matmul.ts: gradients of matrix products.
import { float, floatOf, int, intOf } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientRule, GradientTable } from './context.js'

/** y = alpha · op(a) · op(b) + beta · c */
const gemm: GradientRule = at => {
  const dy = at.dy()
  const [a, b, c] = [at.input(0), at.input(1), at.input(2)]
  const [transA, transB] = [intOf(at.node, 'transA', 0), intOf(at.node, 'transB', 0)]
  const product = (left: string, transLeft: number, right: string, transRight: number): string =>
    at.add('Gemm', [left, right], {
      alpha: float(floatOf(at.node, 'alpha', 1)),
      transA: int(transLeft),
      transB: int(transRight),
    })
  if (at.wants(0)) at.give(0, transA ? product(b, transB, dy, 1) : product(dy, 0, b, 1 - transB))
  if (at.wants(1)) at.give(1, transB ? product(dy, 1, a, transA) : product(a, 1 - transA, dy, 0))
  if (!c || !at.wants(2)) return
  const beta = floatOf(at.node, 'beta', 1)
  const scaled = beta === 1 ? dy : at.add('Mul', [dy, at.constant(beta)])
  at.giveSummed(2, scaled)
}

/** Batches of matrices, a vector being a row on the left and a column on the right; what was repeated gets the sum. */
const matmul: GradientRule = at => {
  const [row, column] = [at.rank(0) === 1, at.rank(1) === 1]
  const raised = (value: string, axis: number): string => at.add('Unsqueeze', [value, at.constant([axis])])
  const [a, b] = [row ? raised(at.input(0), 0) : at.input(0), column ? raised(at.input(1), 1) : at.input(1)]
  const whole = column ? raised(at.dy(), -1) : at.dy()
  const dy = row ? raised(whole, -2) : whole
  const product = (left: string, right: string, transposed: 'transA' | 'transB'): string =>
    at.add('FusedMatMul', [left, right], { [transposed]: int(1) }, sparkDomain)
  if (at.wants(0)) at.giveSummed(0, product(dy, b, 'transB'))
  if (!at.wants(1)) return
  const db = product(a, dy, 'transA')
  at.giveSummed(1, column ? at.add('Squeeze', [db, at.constant([-1])]) : db)
}

/** Gradients of matrix products. */
export const matmuls: GradientTable = {
  '': { Gemm: gemm, MatMul: matmul },
}
