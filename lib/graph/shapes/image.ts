// image.ts: shapes of operators on images.
import { derive, fixSizes, isSize, type Size } from '../../core/size.js'
import { stringOf } from '../attributes.js'
import { type SymbolicDimension, sparkDomain } from '../graph.js'
import { type Rule, type ShapeContext, showShape, tensorOrUnknown } from './context.js'
import type { Shape } from './dimensions.js'
import { expectRank, expectShape } from './operands.js'
import { shapeFrom } from './reshape.js'
import { type Check, type Choices, moved, type OperatorTable, sameAs } from './row.js'

const smaller = (a: number, b: number): number => Math.min(a, b)

const larger = (a: number, b: number): number => Math.max(a, b)

function resize(ctx: ShapeContext): Shape | undefined {
  const shape = ctx.shape(0)
  if (!shape) return undefined
  const axes = ctx.ints('axes')?.map(axis => ctx.axis(axis, shape.length)) ?? shape.map((_, i) => i)
  const result = [...shape]
  const sizes = ctx.has(3) ? ctx.known(3)?.elements : undefined
  const scales = ctx.has(2) ? ctx.sizes(2) : undefined
  const policy = stringOf(ctx.node, 'keep_aspect_ratio_policy')
  if (sizes && policy !== 'stretch') return aspectKept(shape, axes, sizes, policy)
  for (const [i, axis] of axes.entries()) {
    const dim = shape[axis]!
    if (sizes) result[axis] = sizes[i] ?? null
    else if (scales) result[axis] = scaled(dim, scales[i])
    else result[axis] = null
  }
  return result
}

/** A size times a scale that may be no integer. */
function scaled(dim: SymbolicDimension, scale: Size | undefined): SymbolicDimension {
  if (scale === undefined) return Number.NaN
  if (scale === 1) return dim
  return isSize(dim) ? derive('scaled', (size, scale) => Math.floor(size! * scale!), dim, scale) : null
}

/** The largest shape of the same aspect ratio in `sizes`, or the smallest one around it. */
function aspectKept(
  shape: Shape,
  axes: readonly number[],
  sizes: readonly SymbolicDimension[],
  policy: string,
): Shape {
  const known = [...sizes, ...axes.map(axis => shape[axis]!)]
  if (!known.every(isSize)) return shape.map((dim, axis) => (axes.includes(axis) ? null : dim))
  const numbers = fixSizes(known as readonly Size[])
  const [wanted, given] = [numbers.slice(0, sizes.length), numbers.slice(sizes.length)]
  const ratios = wanted.map((size, i) => size / given[i]!)
  const common = ratios.reduce(policy === 'not_larger' ? smaller : larger, ratios[0] ?? 1)
  const result = [...shape]
  for (const [i, axis] of axes.entries()) result[axis] = Math.round(common * given[i]!)
  return result
}

const sampledGrid: Rule = moved(ctx => {
  const [x, grid] = [ctx.shape(0), ctx.shape(1)]
  return x && grid ? [...x.slice(0, 2), ...grid.slice(1, -1)] : undefined
})

const affineGrid: Rule = moved(ctx => {
  const size = shapeFrom(ctx, 1)
  return size && [size[0] ?? null, ...size.slice(2), size.length - 2]
})

const expectGrid: Check = ctx => {
  const [x, grid] = [ctx.shape(0), ctx.shape(1)]
  expectRank(ctx, 3)
  if (x) expectShape(ctx, 1, 'the grid', [x[0]!, ...x.slice(2).map(() => null), x.length - 2])
  if (grid && grid.length < 3) throw ctx.fail(`the grid is ${showShape(grid)}`)
}

/** Modes of GridSample. */
const gridModes: Choices = {
  mode: ['nearest', 'linear', 'cubic', 'bilinear', 'bicubic'],
  padding_mode: ['zeros', 'border', 'reflection'],
}

/** Modes of Resize. */
const resizeModes: Choices = {
  mode: ['nearest', 'linear', 'cubic'],
  nearest_mode: ['round_prefer_floor', 'round_prefer_ceil', 'floor', 'ceil'],
  keep_aspect_ratio_policy: ['stretch', 'not_larger', 'not_smaller'],
  coordinate_transformation_mode: [
    'half_pixel',
    'half_pixel_symmetric',
    'pytorch_half_pixel',
    'tf_half_pixel_for_nn',
    'align_corners',
    'asymmetric',
    'tf_crop_and_resize',
  ],
}

/** Rows of operators on images. */
export const images: OperatorTable = {
  '': {
    Resize: { shape: moved(resize), integers: [3], choices: resizeModes },
    GridSample: { shape: sampledGrid, check: expectGrid, choices: gridModes },
    AffineGrid: { shape: affineGrid, integers: [1] },
    ImageDecoder: { shape: () => [tensorOrUnknown('u8', [null, null, null])] },
    NonMaxSuppression: { shape: () => [tensorOrUnknown('i64', [null, 3])], integers: [2] },
  },
  [sparkDomain]: {
    ResizeGrad: { shape: sameAs(1) },
  },
}
