// conv.ts: shapes of convolutions.
import { numel } from '../../core/shape.js'
import { add, exactDivide, isSize, multiply, subtract } from '../../core/size.js'
import { stringOf } from '../attributes.js'
import { type SymbolicDimension, sparkDomain } from '../graph.js'
import { type Rule, type ShapeContext, showShape, tensorOrUnknown } from './context.js'
import { compatible, type Shape, unknownShape } from './dimensions.js'
import { expectCount, expectShape } from './operands.js'
import { type Check, f32, type OperatorTable, rowsOf, sameAs } from './row.js'
import { autoPads, outputSize, windows } from './window.js'

/** Shape of a convolution with the weight at input `weight`. */
export function convolution(ctx: ShapeContext, weight: number): Shape | undefined {
  const [x, w] = [ctx.shape(0), ctx.shape(weight)]
  if (!x || !w) return x && unknownShape(x.length)
  const [n, c] = x as readonly [SymbolicDimension, SymbolicDimension]
  const groups = ctx.int('group')
  if (w.length !== x.length || x.length < 3)
    throw ctx.fail(`x is ${showShape(x)} and the weight ${showShape(w)}`)
  if (typeof w[1] === 'number' && !compatible(c, w[1] * groups)) {
    throw ctx.fail(
      `x is ${showShape(x)}, the weight ${showShape(w)} and group ${groups}: ${c} channels do not fit`,
    )
  }
  const moves = windows(ctx, x.length - 2, w.slice(2))
  return [n, w[0]!, ...moves.map((window, i) => outputSize(ctx, x[i + 2]!, window))]
}

function transposed(ctx: ShapeContext): Shape | undefined {
  const [x, w] = [ctx.shape(0), ctx.shape(1)]
  if (!x || !w) return x && unknownShape(x.length)
  const spatial = x.length - 2
  const moves = windows(ctx, spatial, w.slice(2))
  const extra = ctx.ints('output_padding') ?? Array<number>(spatial).fill(0)
  const fixed = ctx.ints('output_shape')?.slice(-spatial)
  const same = stringOf(ctx.node, 'auto_pad').startsWith('SAME')
  const channels = typeof w[1] === 'number' ? w[1] * ctx.int('group') : null
  const sizes = moves.map(({ size, stride, dilation, pads }, i) => {
    const dim = x[i + 2]!
    if (fixed) return fixed[i]!
    if (!isSize(dim)) return null
    if (same) return multiply(dim, stride)
    if (!isSize(size)) return null
    const span = add(multiply(subtract(size, 1), dilation), 1)
    return add(multiply(stride, subtract(dim, 1)), extra[i]! - pads[0] - pads[1], span)
  })
  return [x[0]!, channels, ...sizes]
}

/** Convolutions with the weight as input `weight` and the bias as input `bias`. */
export const convolutionOperands =
  (weight: number, bias: number): Check =>
  ctx => {
    const w = ctx.shape(weight)
    const groups = ctx.int('group')
    expectCount(ctx, bias, 'its bias', w?.[0], 'one for each filter')
    const filters = w?.[0]
    if (groups < 1 || (typeof filters === 'number' && filters % groups !== 0))
      throw ctx.fail(`group ${groups} does not divide the ${filters ?? '?'} filters of ${showShape(w)}`)
    expectKernel(ctx, w)
  }

export function expectKernel(ctx: ShapeContext, w: Shape | undefined): void {
  const kernel = ctx.ints('kernel_shape')
  const same =
    kernel?.length === (w?.length ?? 0) - 2 && kernel.every((size, i) => compatible(size, w![i + 2]!))
  if (kernel && w && !same)
    throw ctx.fail(`kernel_shape is ${showShape(kernel)}, but the weight is ${showShape(w)}`)
}

const expectTransposedOperands: Check = ctx => {
  const [x, w] = [ctx.shape(0), ctx.shape(1)]
  const groups = ctx.int('group')
  if (x && w && (x.length !== w.length || x.length < 3 || !compatible(x[1]!, w[0]!)))
    throw ctx.fail(`x is ${showShape(x)} and the weight ${showShape(w)}`)
  const channels = w?.[0]
  if (groups < 1 || (typeof channels === 'number' && channels % groups !== 0))
    throw ctx.fail(`group ${groups} does not divide ${channels ?? '?'} channels`)
  const filters = w?.[1]
  expectCount(
    ctx,
    2,
    'its bias',
    typeof filters === 'number' ? filters * groups : null,
    'one for each filter',
  )
  expectKernel(ctx, w)
}

const expectCausalOperands: Check = ctx => {
  const [x, w] = [ctx.shape(0), ctx.shape(1)]
  if (!x || !w) return
  if (x.length !== 3 || w.length !== 3 || !compatible(x[1]!, w[0]!) || !compatible(w[1]!, 1) || w[2] === 0)
    throw ctx.fail(`x is ${showShape(x)} and the weight ${showShape(w)}`)
  expectCount(ctx, 2, 'its bias', w[0], 'one for each channel')
  expectShape(ctx, 3, 'the past', [x[0]!, x[1]!, typeof w[2] === 'number' ? w[2] - 1 : null])
}

const causalConv: Rule = ctx => {
  const [x, w] = [ctx.shape(0), ctx.shape(1)]
  const size = w?.[2]
  const state = typeof size === 'number' ? size - 1 : null
  return [ctx.type(0), tensorOrUnknown(ctx.dtype(0), x && [x[0]!, x[1]!, state])]
}

const col2Im: Rule = ctx => {
  const [x, image, block] = [ctx.shape(0), ctx.known(1)?.elements, ctx.numbers(2)]
  if (!x || !image || !block) return [tensorOrUnknown(ctx.dtype(0), undefined)]
  const width = numel(block)
  return [
    tensorOrUnknown(ctx.dtype(0), [
      x[0]!,
      isSize(x[1]) ? (exactDivide(x[1], width) ?? null) : null,
      ...image,
    ]),
  ]
}

/** Rows of convolutions. */
export const convolutions: OperatorTable = {
  '': {
    Conv: {
      shape: ctx => [tensorOrUnknown(ctx.commonDtype([0, 1, 2]), convolution(ctx, 1))],
      check: convolutionOperands(1, 2),
      choices: autoPads,
    },
    ConvTranspose: {
      shape: ctx => [tensorOrUnknown(ctx.commonDtype([0, 1, 2]), transposed(ctx))],
      check: expectTransposedOperands,
      choices: autoPads,
    },
    DeformConv: {
      shape: ctx => [tensorOrUnknown(ctx.dtype(0), convolution(ctx, 1))],
      check: convolutionOperands(1, 3),
    },
    CausalConvWithState: {
      shape: causalConv,
      check: expectCausalOperands,
      choices: { activation: ['none', 'silu', 'swish'] },
    },
    Col2Im: { shape: col2Im, integers: [1, 2] },
  },
  [sparkDomain]: {
    FusedConv: { shape: ctx => [tensorOrUnknown(ctx.commonDtype([0, 1, 2, 3]), convolution(ctx, 1))] },
    ConvGrad: { shape: ctx => [...sameAs(1, 2)(ctx), ...f32(rowsOf(ctx, 2))] },
    ConvTransposeGrad: { shape: ctx => [...sameAs(1, 2)(ctx), ...f32([ctx.shape(0)?.[1] ?? null])] },
  },
}
