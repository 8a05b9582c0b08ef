// loss.ts: losses of classifiers: one kernel for the mean over a batch, compositions for the general form.
import { int, intOf } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering, Value } from '../lowering.js'
import { addBinary } from './elementwise.js'
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

/** Scores [T, C] and i32 labels [T] at inputs `i` and `i + 1`. */
function classification(at: Lowering, i: number) {
  const [tokens = 0, classes = 0, ...rest] = at.shape(i)
  const reduction = at.text('reduction', 'mean')
  if (rest.length > 0 || reduction !== 'mean' || at.has(i + 2) || at.input(i + 1).dtype !== 'i32') {
    throw at.unsupported(
      'only the mean over scores [N, C] with i32 labels and without weights is supported yet',
    )
  }
  return { tokens, classes, logits: at.read(i), labels: at.read(i + 1) }
}

/** The mean over scores [N, C] has a kernel of its own. */
function crossEntropy(at: Lowering): void {
  const plain = at.shape(0).length === 2 && at.text('reduction', 'mean') === 'mean' && !at.has(2)
  if (!plain || at.wants(1) || at.input(1).dtype !== 'i32' || at.dtype() !== 'f32') {
    generalCrossEntropy(at)
    return
  }
  at.step('softmaxCrossEntropy', { ...classification(at, 0), loss: at.write() })
}

/** dloss, scores, labels → dscores */
function crossEntropyGrad(at: Lowering): void {
  const { shape } = at.output()
  const loss = at.scratch(1).write()
  if (at.input(0).known?.[0] === 1) {
    at.step('softmaxCrossEntropy', { ...classification(at, 1), loss, dlogits: at.write() })
    return
  }
  const slope = at.scratch(at.read(1).count)
  at.step('softmaxCrossEntropy', { ...classification(at, 1), loss, dlogits: slope.write() })
  addBinary(at, 'mul', [slope.read(), shape], [at.read(0), []], [at.write(), shape])
}

/** Lowerings of losses. */
export const losses: LowerTable = {
  '': {
    NegativeLogLikelihoodLoss: negativeLogLikelihood,
    SoftmaxCrossEntropyLoss: crossEntropy,
  },
  [sparkDomain]: { SoftmaxCrossEntropyLossGrad: crossEntropyGrad },
}
