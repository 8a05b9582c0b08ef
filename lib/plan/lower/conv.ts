// conv.ts: convolutions, and the effective weight of a DoRA layer that is not linear.
import { sparkDomain } from '../../graph/graph.js'
import type { Activation, ConvShape } from '../../kernels/kernels.js'
import type { Lowering } from '../lowering.js'
import { addNorm, computeOf, exactCompute, lowRankOf, weightOf } from './linear.js'
import { addReduce } from './reduce.js'
import type { LowerTable } from './table.js'
import { windowOf } from './window.js'

/** The convolution of input `x` with the weight that is input `x + 1`, to an output of the shape `y`. */
function convShape(at: Lowering, x: number, y: readonly number[]): ConvShape {
  const { padsEnd: _, ...window } = windowOf(at, at.shape(x), y, at.shape(x + 1).slice(2))
  return { batch: at.shape(x)[0]!, groups: at.integer('group', 1), ...window }
}

/** y = activation(conv(x, W) + bias) + residual, or the residual before the activation with `residual_first` */
function conv(at: Lowering): void {
  const weight = weightOf(at, 1)
  at.step('conv', {
    ...{
      ...convShape(at, 0, at.output().shape),
      weight,
      compute: computeOf(at, weight, 'convolution'),
      x: at.read(0),
    },
    ...{
      bias: at.optional(2),
      residual: at.optional(3),
      activation: at.text('activation', 'none') as Activation,
    },
    ...{ residualFirst: at.integer('residual_first', 0) !== 0, y: at.write() },
  })
}

/** The convolution from y to x, which the node transposes; its weight is input `x + 1`. */
function transposedShape(at: Lowering, x: number, y: readonly number[]): ConvShape {
  const [from, kernel] = [at.shape(x), at.shape(x + 1).slice(2)]
  const { padsEnd: _, ...window } = windowOf(at, y, from, kernel)
  const extra = at.integersOf('output_padding') ?? kernel.map(() => 0)
  const given = at.integersOf('output_shape') === undefined && at.text('auto_pad', 'NOTSET') === 'NOTSET'
  const padsBegin = window.padsBegin.map((pad, i) => {
    if (given) return pad
    const span = (kernel[i]! - 1) * window.dilations[i]! + 1
    const total = window.strides[i]! * (window.out[i]! - 1) + extra[i]! + span - window.image[i]!
    const half = Math.floor(total / 2)
    return at.text('auto_pad', 'NOTSET') === 'SAME_UPPER' ? half : total - half
  })
  return { batch: from[0]!, groups: at.integer('group', 1), ...window, padsBegin }
}

function convTranspose(at: Lowering): void {
  const shape = transposedShape(at, 0, at.output().shape)
  const [weight, x] = [weightOf(at, 1), at.read(0)]
  const compute = computeOf(at, weight)
  at.step('convTranspose', { ...shape, weight, compute, x, bias: at.optional(2), y: at.write() })
}

/** dy, x, W → dx, dW, dbias: to the convolution that was transposed dy is the image and x the gradient of its output. */
function convTransposeGrad(at: Lowering): void {
  const shape = transposedShape(at, 1, at.shape(0))
  const [weight, dy] = [weightOf(at, 2), at.read(0)]
  const compute = exactCompute(at, [0, 1, 2])
  if (at.wants(0)) at.step('conv', { ...shape, weight, compute, x: dy, y: at.write(0) })
  if (at.wants(1)) {
    at.step('convBackward', { ...shape, weight, compute, dy: at.read(1), x: dy, dweight: at.write(1) })
  }
  if (!at.wants(2)) return
  const axes = new Set(at.shape(0).keys())
  axes.delete(1)
  addReduce(at, 'sum', [dy, at.shape(0)], axes, at.write(2))
}

/** dy, x, W → dx, dW, dbias */
function convGrad(at: Lowering): void {
  at.step('convBackward', {
    ...{ ...convShape(at, 1, at.shape(0)), weight: weightOf(at, 2), dy: at.read(0), x: at.read(1) },
    ...{ dx: at.result(0), dweight: at.result(1), dbias: at.result(2), compute: exactCompute(at, [0, 1, 2]) },
  })
}

/** W, A, B, magnitude → the weight of a plain layer that computes the same, and norm and gain for its gradient */
function doraWeight(at: Lowering): void {
  const [weight, lowRank] = [weightOf(at, 0), lowRankOf(at, 1)]
  const [norm, gain] = [at.resultOrScratch(1, weight.rows), at.resultOrScratch(2, weight.rows)]
  addNorm(at, 0, norm, gain)
  at.step('doraMerge', { weight, ...lowRank, gain: gain.buffer.read(), merged: at.write() })
}

/** dweight, W, A, B, norm, gain → dA, dB, dmagnitude */
function doraWeightGrad(at: Lowering): void {
  const weight = weightOf(at, 1)
  const { a, b, ...scaling } = lowRankOf(at, 2)
  at.step('doraMergeBackward', {
    ...{ weight, a, b, ...scaling, exactNorm: at.text('norm_gradient', 'detached') === 'exact' },
    ...{ dmerged: at.read(0), norm: at.read(4), gain: at.read(5) },
    dv: at.scratch(weight.rows * weight.cols).write(),
    ...{ da: at.resultOrScratch(0, a.count), db: at.resultOrScratch(1, b.count) },
    dmagnitude: at.resultOrScratch(2, weight.rows),
  })
}

/** Lowerings of convolutions. */
export const convolution: LowerTable = {
  '': { Conv: at => at.inF32(conv), ConvTranspose: at => at.inF32(convTranspose) },
  [sparkDomain]: {
    FusedConv: at => at.inF32(conv),
    ConvGrad: convGrad,
    ConvTransposeGrad: convTransposeGrad,
    DoRAWeight: doraWeight,
    DoRAWeightGrad: doraWeightGrad,
  },
}
