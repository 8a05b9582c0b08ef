// training.ts: normalization with frozen statistics, the classifier's loss, and the optimizer.
import { sparkDomain } from '../../../graph/graph.js'
import type { Lowering } from '../lowering.js'
import { addBinary, addUnary } from './elementwise.js'
import { generalCrossEntropy } from './loss.js'
import type { LowerTable } from './table.js'

/** Adds scale = gamma / √(variance + epsilon), from inputs of the node. */
function channelScale(at: Lowering, gamma: number, variance: number) {
  const { shape } = at.input(gamma)
  const channels = at.input(gamma).buffer.count
  const [shifted, root, scale] = [at.scratch(channels), at.scratch(channels), at.scratch(channels)]
  const epsilon = at.scalar(at.number('epsilon', 1e-5))
  addBinary(at, 'add', [at.read(variance), shape], [epsilon, []], [shifted.write(), shape])
  addUnary(at, 'sqrt', shifted.read(), root.write())
  addBinary(at, 'div', [at.read(gamma), shape], [root.read(), shape], [scale.write(), shape])
  return scale
}

/** [C, 1, …] for an activation [N, C, …]. */
const channelShape = (shape: readonly number[]): number[] => [shape[1]!, ...shape.slice(2).map(() => 1)]

/** x, gamma, beta, mean, variance → gamma · (x − mean) / √(variance + epsilon) + beta */
function batchNormalization(at: Lowering): void {
  if (at.integer('training_mode', 0) !== 0) throw at.unsupported('training_mode is not supported yet')
  const shape = at.shape(0)
  const [channel, row] = [channelShape(shape), at.shape(1)]
  const scale = channelScale(at, 1, 4)
  const [moved, shift] = [at.scratch(scale.count), at.scratch(scale.count)]
  const product = at.scratch(at.read(0).count)
  addBinary(at, 'mul', [at.read(3), row], [scale.read(), row], [moved.write(), row])
  addBinary(at, 'sub', [at.read(2), row], [moved.read(), row], [shift.write(), row])
  addBinary(at, 'mul', [at.read(0), shape], [scale.read(), channel], [product.write(), shape])
  addBinary(at, 'add', [product.read(), shape], [shift.read(), channel], [at.write(), shape])
}

/** dy, gamma, variance → dx */
function batchNormalizationGrad(at: Lowering): void {
  const shape = at.shape(0)
  const scale = channelScale(at, 1, 2)
  addBinary(at, 'mul', [at.read(0), shape], [scale.read(), channelShape(shape)], [at.write(), shape])
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

/** Learning rate, step (both one f64), parameter, gradient, first and second moment → the last of these but the gradient */
function adamw(at: Lowering): void {
  at.step('adamw', {
    ...{ count: at.read(2).count, lr: at.read(0), step: at.read(1) },
    ...{ beta1: at.number('beta1', 0.9), beta2: at.number('beta2', 0.999) },
    ...{ eps: at.number('epsilon', 1e-8), weightDecay: at.number('weight_decay', 0.01) },
    ...{ grad: at.read(3), param: at.inPlace(2, 0), m: at.inPlace(4, 1), v: at.inPlace(5, 2) },
  })
}

/** Lowerings of operators for training. */
export const training: LowerTable = {
  '': { BatchNormalization: batchNormalization, SoftmaxCrossEntropyLoss: crossEntropy },
  [sparkDomain]: {
    BatchNormalizationGrad: batchNormalizationGrad,
    SoftmaxCrossEntropyLossGrad: crossEntropyGrad,
    AdamW: adamw,
  },
}
