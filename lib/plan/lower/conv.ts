// conv.ts: convolutions.
import { numel } from '../../core/shape.js'
import { float, int } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { ConvShape } from '../../kernels/conv-shape.js'
import type { Activation } from '../../kernels/kernel-args.js'
import type { StoredWeight } from '../../precision/weight-format.js'
import type { Lowering } from '../lowering.js'
import type { Symbolic } from '../program.js'
import { computeOf, exactCompute, weightOf } from './matmul.js'
import { addReduce } from './reduce.js'
import type { LowerTable } from './table.js'
import { windowOf } from './window.js'

/** The convolution of input `x` with the weight that is input `x + 1`, to an output of the shape `y`. */
function convShape(at: Lowering, x: number, y: readonly number[]): ConvShape {
  const { padsEnd: _, ...window } = windowOf(at, at.shape(x), y, at.shape(x + 1).slice(2))
  return { batch: at.shape(x)[0]!, groups: at.integer('group', 1), ...window }
}

/** Positions that fill a vector of the CPU: with fewer of them in an image it multiplies bf16 no faster than f32. */
const fewPositions = 16

/** What the products of a convolution with input 1 are formed of. */
function convCompute(at: Lowering, weight: Symbolic<StoredWeight>): ReturnType<typeof computeOf> {
  const fast = at.bf16Units !== 'none' && (!at.packs || numel(at.output().shape.slice(2)) >= fewPositions)
  return fast ? computeOf(at, weight) : 'f32'
}

/** y = activation(conv(x, W) + bias) + residual, or the residual before the activation with `residual_first` */
function conv(at: Lowering): void {
  const weight = weightOf(at, 1)
  at.step('conv', {
    ...{ ...convShape(at, 0, at.output().shape), weight, compute: convCompute(at, weight), x: at.read(0) },
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

/** x [B, C, T], W [C, 1, K], bias, past [B, C, K − 1] → a convolution that sees the past, and the next past */
function causalConv(at: Lowering): void {
  const [batch = 0, channels = 0, length = 0] = at.shape(0)
  const history = at.shape(1)[2]! - 1
  const past = at.inputIfAny(3) ?? at.call('Expand', [at.one(0), at.ints([batch, channels, history])])
  const seen = at.call('Concat', [past, at.input(0)], { axis: int(2) })
  const y = at.call('Conv', [seen, at.input(1), at.inputIfAny(2)], { group: int(channels) })
  const activation = at.text('activation', 'none')
  at.give(activation === 'none' ? y : at.call('Swish', [y], { alpha: float(1) }))
  const ends = [at.ints([length]), at.ints([length + history]), at.ints([2])]
  at.give(at.call('Slice', [seen, ...ends]), 1)
}

/** Lowerings of convolutions. */
export const convolutions: LowerTable = {
  '': {
    Conv: at => at.inF32(conv),
    ConvTranspose: at => at.inF32(convTranspose),
    CausalConvWithState: at => at.inF32(causalConv),
  },
  [sparkDomain]: {
    FusedConv: at => at.inF32(conv),
    ConvGrad: convGrad,
    ConvTransposeGrad: convTransposeGrad,
  },
}
