// shape.ts: gradients of operators that move or repeat elements, and of reductions.
import { int, intOf, ints, intsOf } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientContext, GradientRule, GradientTable } from './context.js'

const reshaped: GradientRule = at => {
  at.give(0, at.add('Reshape', [at.dy(), at.add('Shape', [at.input(0)])]))
}

const transpose: GradientRule = at => {
  const order = intsOf(at.node, 'perm')
  const back = order?.map((_, axis) => order.indexOf(axis))
  at.give(0, at.add('Transpose', [at.dy()], back ? { perm: ints(back) } : {}))
}

/** Sums and means: dy is repeated along the axes that are gone. */
const reduction: GradientRule = at => {
  const axes = at.input(1)
  const inputs = [at.dy(), at.input(0), ...(axes ? [axes] : [])]
  at.give(0, at.add(`${at.node.op}Grad`, inputs, at.node.attributes, sparkDomain))
}

const sumOf = (at: GradientContext, x: string, axis: number): string =>
  at.add('ReduceSum', [x, at.constant([axis])], { keepdims: int(1) })

/** dx = y ∘ (dy − Σ dy ∘ y) */
const softmax: GradientRule = at => {
  const [dy, y] = [at.dy(), at.output()]
  const sum = sumOf(at, at.add('Mul', [dy, y]), intOf(at.node, 'axis', -1))
  at.give(0, at.add('Mul', [y, at.add('Sub', [dy, sum])]))
}

/** dx = dy − e^y · Σ dy */
const logSoftmax: GradientRule = at => {
  const dy = at.dy()
  const sum = sumOf(at, dy, intOf(at.node, 'axis', -1))
  at.give(0, at.add('Sub', [dy, at.add('Mul', [at.add('Exp', [at.output()]), sum])]))
}

/** Rules of operators on shapes and of reductions. */
export const shape: GradientTable = {
  '': {
    Identity: at => at.give(0, at.dy()),
    Reshape: reshaped,
    Flatten: reshaped,
    Squeeze: reshaped,
    Unsqueeze: reshaped,
    Transpose: transpose,
    Expand: at => at.give(0, at.add('SumLike', [at.dy(), at.input(0)], {}, sparkDomain)),
    ReduceSum: reduction,
    ReduceMean: reduction,
    Softmax: softmax,
    LogSoftmax: logSoftmax,
  },
}
