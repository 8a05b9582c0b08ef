// softmax.ts: gradients of softmax and its logarithm.
import { int, intOf } from '../attributes.js'
import type { GradientContext, GradientRule, GradientTable } from './context.js'

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

/** Gradients of softmax and its kin. */
export const softmaxes: GradientTable = {
  '': { Softmax: softmax, LogSoftmax: logSoftmax },
}
