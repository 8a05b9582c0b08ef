// loss.ts: losses of a classifier in their general form, as compositions.
import { int, intOf } from '../../graph/attributes.js'
import type { Lowering, Value } from '../lowering.js'
import type { LowerTable } from './table.js'

/** Log probabilities [N, C, …], labels [N, …], weights of the classes → the loss, −log p of the label. */
function negativeLogLikelihood(at: Lowering): void {
  const labels = at.cast(at.input(1), 'i64')
  const ignored = intOf(at.node, 'ignore_index', undefined)
  const dtype = at.dtype()
  const counts =
    ignored === undefined ? undefined : at.call('Not', [at.call('Equal', [labels, at.one(ignored, 'i64')])])
  const safe = counts ? at.call('Where', [counts, labels, at.one(0, 'i64')]) : labels
  const axis = at.ints([1])
  const picked = at.call('GatherElements', [at.input(0), at.call('Unsqueeze', [safe, axis])], {
    axis: int(1),
  })
  let weights: Value | undefined
  if (at.has(2)) weights = at.call('Gather', [at.input(2), safe], { axis: int(0) })
  if (counts) weights = at.call('Where', [counts, weights ?? at.one(1, dtype), at.one(0, dtype)])
  let loss = at.call('Neg', [at.call('Squeeze', [picked, axis])])
  if (weights) loss = at.call('Mul', [loss, weights])
  const whole = { keepdims: int(0) }
  const reduction = at.text('reduction', 'mean')
  if (reduction === 'none') at.give(loss)
  else if (reduction === 'sum') at.give(at.call('ReduceSum', [loss], whole))
  else if (!weights) at.give(at.call('ReduceMean', [loss], whole))
  else {
    const sums = [loss, weights].map(value => at.call('ReduceSum', [value], whole))
    at.give(at.call('Div', sums))
  }
}

/** Scores [N, C, …], labels, weights → the loss of their log probabilities, and these. */
export function generalCrossEntropy(at: Lowering): void {
  const logProbabilities = at.call('LogSoftmax', [at.input(0)], { axis: int(1) })
  const rest = at.node.inputs.slice(1).map((_, i) => (at.has(i + 1) ? at.input(i + 1) : undefined))
  at.give(at.call('NegativeLogLikelihoodLoss', [logProbabilities, ...rest], at.node.attributes))
  at.give(logProbabilities, 1)
}

/** Lowerings of losses. */
export const losses: LowerTable = {
  '': { NegativeLogLikelihoodLoss: negativeLogLikelihood },
}
