// training.ts: normalization with frozen statistics, the classifier's loss, dropout, and the optimizer.
import { numel } from '../../core/shape.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering, Value } from '../lowering.js'
import type { Buffer } from '../program.js'
import { addBinary } from './elementwise.js'
import { generalCrossEntropy } from './loss.js'
import type { LowerTable } from './table.js'

/** An activation [N, C, …] at input `i`, as a kernel sees it. */
function batchShape(at: Lowering, i: number) {
  const [batch = 1, channels = 1, ...rest] = at.shape(i)
  return { batch, channels, positions: numel(rest), eps: at.number('epsilon', 1e-5) }
}

/**
 * x, gamma, beta, mean, variance → gamma · (x − mean) / √(variance + epsilon) + beta. In training mean and variance are
 * those of x, and the next running ones are given out.
 */
function batchNormalization(at: Lowering): void {
  const training = at.integer('training_mode', 0) !== 0
  const { eps, ...shape } = batchShape(at, 0)
  const [mean, variance] = training
    ? [at.scratch(shape.channels), at.scratch(shape.channels)]
    : [at.input(3).buffer, at.input(4).buffer]
  const x = at.read(0)
  if (training) {
    at.step('batchStatistics', { ...shape, x, mean: mean.write(), variance: variance.write() })
    updateRunning(at, 3, mean, 1)
    updateRunning(at, 4, variance, 2)
  }
  const affine = { scale: at.read(1), bias: at.read(2) }
  const statistics = { mean: mean.read(), variance: variance.read() }
  at.step('batchNorm', { ...shape, eps, x, ...statistics, ...affine, y: at.write() })
}

/** Output `o` = momentum · input `i` + (1 − momentum) · the statistics of this batch. */
function updateRunning(at: Lowering, i: number, current: Buffer, o: number): void {
  if (!at.wants(o)) return
  const momentum = at.number('momentum', 0.9)
  const fresh: Value = { dtype: 'f32', shape: at.shape(i), buffer: current }
  const kept = at.call('Mul', [at.input(i), at.one(momentum)])
  at.give(at.call('Add', [kept, at.call('Mul', [fresh, at.one(1 - momentum)])]), o)
}

/** dy, x, gamma, mean, variance → dx, dgamma, dbeta */
function batchNormalizationGrad(at: Lowering): void {
  // Only dgamma depends on x. Without it another array of that size stands in, and x need not live so long.
  const x = at.read(at.wants(1) ? 1 : 0)
  at.step('batchNormBackward', {
    ...{ ...batchShape(at, 1), training: false, mean: at.read(3), variance: at.read(4), scale: at.read(2) },
    ...{ x, dy: at.read(0), dx: at.result(0), dscale: at.result(1), dbias: at.result(2) },
  })
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

/** x, state → a mask of the shape of x */
function dropoutMask(at: Lowering): void {
  const { shape } = at.output()
  const mask = at.scratch(numel(shape))
  at.step('dropoutMask', {
    ...{ count: mask.count, ratio: at.number('ratio', 0), stream: at.integer('stream', 0) },
    ...{ state: at.read(1), mask: mask.write() },
  })
  at.give({ dtype: 'f32', shape, buffer: mask })
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
  '': { BatchNormalization: at => at.inF32(batchNormalization), SoftmaxCrossEntropyLoss: crossEntropy },
  [sparkDomain]: {
    BatchNormalizationGrad: batchNormalizationGrad,
    SoftmaxCrossEntropyLossGrad: crossEntropyGrad,
    DropoutMask: dropoutMask,
    AdamW: adamw,
  },
}
