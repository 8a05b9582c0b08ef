// conv.ts: convolutions.
import { add, fixSize, floorDivide, multiply, type Size, subtract } from '../../core/size.js'
import { float, int } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { ConvShape } from '../../kernels/conv-args.js'
import type { Activation } from '../../kernels/linear-args.js'
import type { Lowering } from '../lowering.js'
import type { Symbolic } from '../program.js'
import { computeOf, exactCompute, weightOf } from './matmul.js'
import { addReduce } from './reduce.js'
import type { LowerTable } from './table.js'
import { windowOf } from './window.js'

/** The convolution of input `x` with the weight that is input `x + 1`, to an output of the shape `y`. */
function convShape(ctx: Lowering, x: number, y: readonly Size[]): Symbolic<ConvShape> {
  const { padsEnd: _, ...window } = windowOf(ctx, ctx.shape(x), y, ctx.shape(x + 1).slice(2))
  return { batch: ctx.shape(x)[0]!, groups: ctx.integer('group'), ...window }
}

/** y = activation(conv(x, W) + bias) + residual, or the residual before the activation with `residual_first` */
function conv(ctx: Lowering): void {
  const weight = weightOf(ctx, 1)
  ctx.step('conv', {
    ...convShape(ctx, 0, ctx.output().shape),
    weight,
    compute: computeOf(ctx, weight, 'convolution'),
    x: ctx.read(0),
    bias: ctx.optional(2),
    residual: ctx.optional(3),
    activation: ctx.text('activation') as Activation,
    residualFirst: ctx.integer('residual_first') !== 0,
    y: ctx.write(),
  })
}

/** The convolution from y to x, which the node transposes; its weight is input `x + 1`. */
function transposedShape(ctx: Lowering, x: number, y: readonly Size[]): Symbolic<ConvShape> {
  const [from, kernel] = [ctx.shape(x), ctx.shape(x + 1).slice(2)]
  const { padsEnd: _, ...window } = windowOf(ctx, y, from, kernel)
  const extra = ctx.integersOf('output_padding') ?? kernel.map(() => 0)
  const given = ctx.integersOf('output_shape') === undefined && ctx.text('auto_pad') === 'NOTSET'
  const padsBegin = window.padsBegin.map((pad, i) => {
    if (given) return pad
    const span = add(multiply(subtract(kernel[i]!, 1), window.dilations[i]!), 1)
    const covered = add(multiply(window.strides[i]!, subtract(window.out[i]!, 1)), extra[i]!, span)
    const total = subtract(covered, window.image[i]!)
    const half = floorDivide(total, 2)
    return ctx.text('auto_pad') === 'SAME_UPPER' ? half : subtract(total, half)
  })
  return { batch: from[0]!, groups: ctx.integer('group'), ...window, padsBegin }
}

function convTranspose(ctx: Lowering): void {
  const shape = transposedShape(ctx, 0, ctx.output().shape)
  const [weight, x] = [weightOf(ctx, 1), ctx.read(0)]
  const compute = computeOf(ctx, weight)
  ctx.step('convTranspose', { ...shape, weight, compute, x, bias: ctx.optional(2), y: ctx.write() })
}

/** dy, x, W → dx, dW, dbias: to the convolution that was transposed dy is the image and x the gradient of its output. */
function convTransposeGrad(ctx: Lowering): void {
  const shape = transposedShape(ctx, 1, ctx.shape(0))
  const [weight, dy] = [weightOf(ctx, 2), ctx.read(0)]
  const compute = exactCompute(ctx, [0, 1, 2])
  if (ctx.wants(0)) ctx.step('conv', { ...shape, weight, compute, x: dy, y: ctx.write(0) })
  if (ctx.wants(1)) {
    ctx.step('convBackward', { ...shape, weight, compute, dy: ctx.read(1), x: dy, dweight: ctx.write(1) })
  }
  if (!ctx.wants(2)) return
  const axes = new Set(ctx.shape(0).keys())
  axes.delete(1)
  addReduce(ctx, 'sum', [dy, ctx.shape(0)], axes, ctx.write(2))
}

/** dy, x, W → dx, dW, dbias */
function convGrad(ctx: Lowering): void {
  ctx.step('convBackward', {
    ...convShape(ctx, 1, ctx.shape(0)),
    weight: weightOf(ctx, 2),
    dy: ctx.read(0),
    x: ctx.read(1),
    dx: ctx.result(0),
    dweight: ctx.result(1),
    dbias: ctx.result(2),
    compute: exactCompute(ctx, [0, 1, 2]),
  })
}

/** x [B, C, T], W [C, 1, K], bias, past [B, C, K − 1] → a convolution that sees the past, and the next past */
function causalConv(ctx: Lowering): void {
  const [batch = 0, channels = 0, length = 0] = ctx.shape(0)
  const history = subtract(ctx.shape(1)[2]!, 1)
  const past = ctx.inputIfAny(3) ?? ctx.call('Expand', [ctx.one(0), ctx.ints([batch, channels, history])])
  const seen = ctx.call('Concat', [past, ctx.input(0)], { axis: int(2) })
  const y = ctx.call('Conv', [seen, ctx.input(1), ctx.inputIfAny(2)], { group: int(fixSize(channels)) })
  const activation = ctx.text('activation')
  ctx.give(activation === 'none' ? y : ctx.call('Swish', [y], { alpha: float(1) }))
  const ends = [ctx.ints([length]), ctx.ints([add(length, history)]), ctx.ints([2])]
  ctx.give(ctx.call('Slice', [seen, ...ends]), 1)
}

/** Lowerings of convolutions. */
export const convolutions: LowerTable = {
  '': {
    Conv: ctx => ctx.inF32(conv),
    ConvTranspose: ctx => ctx.inF32(convTranspose),
    CausalConvWithState: ctx => ctx.inF32(causalConv),
  },
  [sparkDomain]: {
    FusedConv: ctx => ctx.inF32(conv),
    ConvGrad: convGrad,
    ConvTransposeGrad: convTransposeGrad,
  },
}
