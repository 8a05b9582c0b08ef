// slice.ts: shapes of slices, pads, concatenations and repetitions.
import { numel } from '../../core/shape.js'
import {
  add,
  ceilDivide,
  isSize,
  lessThan,
  maximum,
  minimum,
  multiply,
  type Size,
  subtract,
  total,
} from '../../core/size.js'
import { maxSymbol } from '../../core/size-scope.js'
import { givenInt, stringOf } from '../attributes.js'
import { type SymbolicDimension, sparkDomain } from '../graph.js'
import { type Rule, type ShapeContext, showShapes, tensorOrUnknown } from './context.js'
import { compatible, mergeDimension, product, type Shape, sliceBounds, unknownShape } from './dimensions.js'
import { remap, smallShape } from './known-values.js'
import { expectInputs, expectRank, single } from './operands.js'
import { listLength, shapeFrom } from './reshape.js'
import { type Check, moved, type OperatorTable, sameAs, sameAsFirst, type ValueRule } from './row.js'

function concat(ctx: ShapeContext): Shape | undefined {
  const shapes = ctx.shapes()
  const first = shapes.find(shape => shape)
  if (!first) return undefined
  const axis = ctx.axis(ctx.int('axis'), first.length)
  const result: SymbolicDimension[] = [...first]
  for (const shape of shapes) {
    if (!shape) continue
    const fits =
      shape.length === first.length && shape.every((dim, i) => i === axis || compatible(dim, result[i]!))
    if (!fits) throw ctx.fail(`${showShapes(shapes)} cannot be joined along axis ${axis}`)
    for (const [i, dim] of shape.entries()) result[i] = mergeDimension(result[i]!, dim)
  }
  const sizes = shapes.map(shape => shape?.[axis] ?? null)
  result[axis] = sizes.length === 1 ? sizes[0]! : sum(sizes)
  return result
}

function sum(sizes: readonly SymbolicDimension[]): SymbolicDimension {
  const others = sizes.filter(size => size !== 0)
  if (others.length === 1) return others[0]!
  return others.every(isSize) ? total(others as readonly Size[]) : null
}

const split: Rule = ctx => {
  const shape = ctx.shape(0)
  const dtype = ctx.dtype(0)
  const count = ctx.node.outputs.length
  if (!shape) return Array.from({ length: count }, () => tensorOrUnknown(dtype, undefined))
  const axis = ctx.axis(ctx.int('axis'), shape.length)
  const size = shape[axis]!
  const parts = givenInt(ctx.node, 'num_outputs') ?? count
  const chunk = isSize(size) ? ceilDivide(size, parts) : null
  const sizes = ctx.has(1)
    ? (ctx.known(1)?.elements ?? [])
    : Array.from({ length: count }, (_, i) =>
        chunk === null ? null : maximum(0, minimum(chunk, subtract(size as Size, multiply(i, chunk)))),
      )
  const total = product(sizes.length === 0 ? [null] : sizes) === null ? null : sum(sizes)
  if (ctx.has(1) && total !== null && !compatible(total, size)) {
    throw ctx.fail(`parts [${sizes.join(', ')}] do not add up to ${size}`)
  }
  return Array.from({ length: count }, (_, i) =>
    tensorOrUnknown(dtype, withDimension(shape, axis, sizes[i] ?? null)),
  )
}

/** `shape` with another size along `axis`. */
export function withDimension(shape: Shape, axis: number, size: SymbolicDimension): Shape {
  return shape.map((dim, i) => (i === axis ? size : dim))
}

function slice(ctx: ShapeContext): Shape | undefined {
  const shape = ctx.shape(0)
  if (!shape) return undefined
  const [starts, ends] = [ctx.sizes(1), ctx.sizes(2)]
  const count = listLength(ctx, 1) ?? 0
  const axes = ctx.has(3) ? ctx.numbers(3) : Array.from({ length: count }, (_, i) => i)
  const steps = ctx.has(4) ? ctx.numbers(4) : Array<number>(count).fill(1)
  if (!axes) return unknownShape(shape.length)
  const result = [...shape]
  for (const [i, axis] of axes.entries()) {
    const at = ctx.axis(axis, shape.length)
    const dim = shape[at]!
    const [start, end, step] = [starts?.[i], ends?.[i], steps?.[i]]
    if (step === 0) throw ctx.fail('a step is 0')
    result[at] =
      start === undefined || end === undefined || step === undefined ? null : sliceSize(dim, start, end, step)
  }
  return result
}

function sliceSize(dim: SymbolicDimension, start: Size, end: Size, step: number): SymbolicDimension {
  if (!isSize(dim))
    return start === 0 && step === 1 && typeof end === 'number' && end >= maxSymbol ? dim : null
  const [first, last] = sliceBounds(dim, start, end, step)
  const length = step > 0 ? subtract(last, first) : subtract(first, last)
  return maximum(0, ceilDivide(length, Math.abs(step)))
}

function pad(ctx: ShapeContext): Shape | undefined {
  const shape = ctx.shape(0)
  if (!shape) return undefined
  const pads = ctx.sizes(1)
  const axes = ctx.has(3) ? ctx.numbers(3) : shape.map((_, i) => i)
  if (!pads || !axes) return unknownShape(shape.length)
  if (pads.length !== 2 * axes.length) throw ctx.fail(`${pads.length} pads for ${axes.length} axes`)
  const repeats = stringOf(ctx.node, 'mode') !== 'constant'
  const result = [...shape]
  for (const [i, axis] of axes.entries()) {
    const at = ctx.axis(axis, shape.length)
    const added = add(pads[i]!, pads[i + axes.length]!)
    const dim = shape[at]!
    if (dim === 0 && repeats && lessThan(0, added))
      throw ctx.fail(`axis ${at} has no elements to be padded with`)
    result[at] = isSize(dim) ? maximum(0, add(dim, added)) : added === 0 ? dim : null
  }
  return result
}

function tile(ctx: ShapeContext): Shape | undefined {
  const shape = ctx.shape(0)
  const repeats = ctx.known(1)?.elements
  if (!shape || !repeats) return shape && unknownShape(shape.length)
  return shape.map((dim, i) => {
    const times = repeats[i] ?? null
    if (dim === 1) return times
    return times === 1 ? dim : product([dim, times])
  })
}

const cropPad: Rule = moved(ctx => {
  const shape = ctx.shape(0)
  const sizes = shapeFrom(ctx, 1)
  const axes = ctx.ints('axes') ?? shape?.map((_, i) => i)
  if (!shape || !sizes || !axes) return undefined
  return axes.reduce<Shape>(
    (result, axis, i) => withDimension(result, ctx.axis(axis, shape.length), sizes[i] ?? null),
    shape,
  )
})

const concatGrad: Rule = ctx => ctx.node.outputs.map((_, i) => ctx.type(i + 1))

const sliceValues: ValueRule = (ctx, [type]) => {
  const [data, shape, ends] = [ctx.known(0), smallShape(type), ctx.sizes(2)]
  if (!data || !shape || !ends) return []
  const starts = ctx.numbers(1)
  const axes = ctx.has(3) ? ctx.numbers(3) : starts?.map((_, i) => i)
  const steps = ctx.has(4) ? ctx.numbers(4) : starts?.map(() => 1)
  if (!starts || !axes || !steps) return []
  const moves = data.shape.map(() => [0, 1] as [number, number])
  for (const [i, axis] of axes.entries()) {
    const at = ctx.axis(axis, data.shape.length)
    const step = steps[i]!
    moves[at] = [sliceBounds(data.shape[at]!, starts[i]!, 0, step)[0], step]
  }
  return [remap(data, shape, position => position.map((at, i) => moves[i]![0] + at * moves[i]![1]))]
}

const concatValues: ValueRule = (ctx, [type]) => {
  const shape = smallShape(type)
  if (!shape || shape.length === 0 || ctx.axis(ctx.int('axis'), shape.length) !== 0) return []
  const parts = ctx.node.inputs.map((_, i) => {
    const known = ctx.known(i)?.elements
    const sizes = smallShape(ctx.type(i))
    return known ?? (sizes && unknownShape(numel(sizes)))
  })
  return parts.every(part => part) ? [{ shape, elements: parts.flatMap(part => part!) }] : []
}

const splitValues: ValueRule = (ctx, types) => {
  const data = ctx.known(0)
  if (data?.shape.length !== 1) return []
  let start = 0
  return types.map(type => {
    const shape = smallShape(type)
    if (!shape) return undefined
    start += shape[0]!
    return { shape, elements: data.elements.slice(start - shape[0]!, start) }
  })
}

const expectMatrices: Check = ctx => {
  expectRank(ctx, 2)
  single('k')(ctx)
}

/** Rows of operators that cut, join, repeat and pad. */
export const slicing: OperatorTable = {
  '': {
    Slice: { shape: moved(slice), integers: [1, 2, 3, 4], values: sliceValues },
    Split: { shape: split, integers: [1], values: splitValues },
    Concat: {
      shape: ctx => [tensorOrUnknown(ctx.commonDtype(), concat(ctx))],
      check: expectInputs,
      values: concatValues,
    },
    Tile: { shape: moved(tile), integers: [1] },
    Pad: { shape: moved(pad), integers: [1, 3], choices: { mode: ['constant', 'edge', 'reflect', 'wrap'] } },
    CenterCropPad: { shape: cropPad, integers: [1] },
    Trilu: { shape: sameAsFirst, check: expectMatrices, integers: [1] },
    ReverseSequence: { shape: sameAsFirst, integers: [1] },
  },
  [sparkDomain]: {
    ConcatGrad: { shape: concatGrad },
    SliceGrad: { shape: sameAs(1) },
    TileGrad: { shape: sameAs(1) },
    PadGrad: { shape: sameAs(1) },
  },
}
