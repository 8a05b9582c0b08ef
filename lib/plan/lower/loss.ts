// loss.ts: losses of classifiers: one kernel for the mean over a batch, compositions for the general form.
import { givenInt, int } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering } from '../lowering.js'
import type { Value } from '../value.js'
import { addBinary } from './elementwise.js'
import type { LowerTable } from './table.js'

/** Log probabilities [N, C, …], labels [N, …], weights of the classes → the loss, −log p of the label. */
function negativeLogLikelihood(ctx: Lowering): void {
  const labels = ctx.cast(ctx.input(1), 'i64')
  const ignored = givenInt(ctx.node, 'ignore_index')
  const dtype = ctx.dtype()
  const counts =
    ignored === undefined
      ? undefined
      : ctx.call('Not', [ctx.call('Equal', [labels, ctx.one(ignored, 'i64')])])
  const safe = counts ? ctx.call('Where', [counts, labels, ctx.one(0, 'i64')]) : labels
  const axis = ctx.ints([1])
  const picked = ctx.call('GatherElements', [ctx.input(0), ctx.call('Unsqueeze', [safe, axis])], {
    axis: int(1),
  })
  let weights: Value | undefined
  if (ctx.has(2)) weights = ctx.call('Gather', [ctx.input(2), safe], { axis: int(0) })
  if (counts) weights = ctx.call('Where', [counts, weights ?? ctx.one(1, dtype), ctx.one(0, dtype)])
  let loss = ctx.call('Neg', [ctx.call('Squeeze', [picked, axis])])
  if (weights) loss = ctx.call('Mul', [loss, weights])
  const whole = { keepdims: int(0) }
  const reduction = ctx.text('reduction')
  if (reduction === 'none') ctx.give(loss)
  else if (reduction === 'sum') ctx.give(ctx.call('ReduceSum', [loss], whole))
  else if (!weights) ctx.give(ctx.call('ReduceMean', [loss], whole))
  else {
    const sums = [loss, weights].map(value => ctx.call('ReduceSum', [value], whole))
    ctx.give(ctx.call('Div', sums))
  }
}

/** Scores [N, C, …], labels, weights → the loss of their log probabilities, and these. */
export function generalCrossEntropy(ctx: Lowering): void {
  const logProbabilities = ctx.call('LogSoftmax', [ctx.input(0)], { axis: int(1) })
  const rest = ctx.node.inputs.slice(1).map((_, i) => (ctx.has(i + 1) ? ctx.input(i + 1) : undefined))
  ctx.give(ctx.call('NegativeLogLikelihoodLoss', [logProbabilities, ...rest], ctx.node.attributes))
  ctx.give(logProbabilities, 1)
}

/** Scores [T, C] and i32 labels [T] at inputs `i` and `i + 1`. */
function classification(ctx: Lowering, i: number) {
  const [tokens = 0, classes = 0, ...rest] = ctx.shape(i)
  const reduction = ctx.text('reduction')
  if (rest.length > 0 || reduction !== 'mean' || ctx.has(i + 2) || ctx.input(i + 1).dtype !== 'i32') {
    throw ctx.unsupported(
      'only the mean over scores [N, C] with i32 labels and without weights is supported yet',
    )
  }
  return { tokens, classes, logits: ctx.read(i), labels: ctx.read(i + 1) }
}

/** The mean over scores [N, C] has a kernel of its own. */
function crossEntropy(ctx: Lowering): void {
  const plain = ctx.shape(0).length === 2 && ctx.text('reduction') === 'mean' && !ctx.has(2)
  if (!plain || ctx.wants(1) || ctx.input(1).dtype !== 'i32' || ctx.dtype() !== 'f32') {
    generalCrossEntropy(ctx)
    return
  }
  ctx.step('softmaxCrossEntropy', { ...classification(ctx, 0), loss: ctx.write() })
}

/** dloss, scores, labels → dscores */
function crossEntropyGrad(ctx: Lowering): void {
  const { shape } = ctx.output()
  const loss = ctx.scratch(1).write()
  if (ctx.input(0).known?.[0] === 1) {
    ctx.step('softmaxCrossEntropy', { ...classification(ctx, 1), loss, dlogits: ctx.write() })
    return
  }
  const slope = ctx.scratch(ctx.read(1).count)
  ctx.step('softmaxCrossEntropy', { ...classification(ctx, 1), loss, dlogits: slope.write() })
  addBinary(ctx, 'mul', [slope.read(), shape], [ctx.read(0), []], [ctx.write(), shape])
}

/** Lowerings of losses. */
export const losses: LowerTable = {
  '': {
    NegativeLogLikelihoodLoss: negativeLogLikelihood,
    SoftmaxCrossEntropyLoss: crossEntropy,
  },
  [sparkDomain]: { SoftmaxCrossEntropyLossGrad: crossEntropyGrad },
}
