// reshape.ts: shapes of views, permutations, and of shapes themselves.
import { numel } from '../../core/shape.js'
import { exactDivide, isSize, multiply, type Size, sameSize } from '../../core/size.js'
import { givenInt } from '../attributes.js'
import type { SymbolicDimension } from '../graph.js'
import { type ShapeContext, showShape, tensorOrUnknown } from './context.js'
import { compatible, flatSize, product, type Shape, sliceBounds, unknownShape } from './dimensions.js'
import { broadcastElement, remap, smallShape } from './known-values.js'
import { type Check, moved, type OperatorTable, sameAsFirst, type ValueRule } from './row.js'

/** Dimensions a tensor may have at most. */
const maxRank = 64

/** Length of input `i`, a list: how many axes, sizes or repeats there are. */
export function listLength(ctx: ShapeContext, i: number): number | undefined {
  const length = ctx.shape(i)?.[0]
  if (typeof length !== 'number') return undefined
  if (length > maxRank)
    throw ctx.fail(`input ${i} lists ${length} dimensions; a tensor has at most ${maxRank}`)
  return length
}

/** The shape that input `i` spells out, as far as it is known. */
export function shapeFrom(ctx: ShapeContext, i: number): Shape | undefined {
  const known = ctx.known(i)
  if (known) return known.elements
  const rank = listLength(ctx, i)
  return rank === undefined ? undefined : unknownShape(rank)
}

function reshape(ctx: ShapeContext): Shape | undefined {
  const wanted = shapeFrom(ctx, 1)
  const input = ctx.shape(0)
  if (!wanted) return undefined
  const copyZeros = ctx.int('allowzero') === 0
  const dims = wanted.map((dim, i) => (dim === 0 && copyZeros ? (input?.[i] ?? null) : dim))
  const open = dims.indexOf(-1)
  if (dims.indexOf(-1, open + 1) > open && open >= 0)
    throw ctx.fail(`shape ${showShape(wanted)} has two times -1`)
  if (open >= 0) dims[open] = input ? remainder(ctx, input, dims, open) : null
  const [before, after] = [input ? product(input) : null, product(dims)]
  if (before !== null && after !== null && !sameSize(before, after)) {
    throw ctx.fail(`${showShape(input)} cannot become ${showShape(dims)}`)
  }
  return dims
}

/** Size that makes up for the rest of the elements; sizes of the same name cancel out. */
function remainder(
  ctx: ShapeContext,
  input: Shape,
  dims: SymbolicDimension[],
  open: number,
): SymbolicDimension {
  const left = [...input]
  const right = dims.filter((_, i) => i !== open)
  for (const dim of [...right]) {
    if (typeof dim !== 'string' || !left.includes(dim)) continue
    left.splice(left.indexOf(dim), 1)
    right.splice(right.indexOf(dim), 1)
  }
  const divisor = product(right)
  const names = left.filter(dim => !isSize(dim))
  if (names.length === 1 && divisor === product(left.filter(isSize))) return names[0]!
  if (divisor === 1) return flatSize(left)
  const total = product(left)
  if (total === null || divisor === null || divisor === 0) return divisor === 0 ? 0 : null
  const result = exactDivide(total, divisor)
  if (result === undefined) throw ctx.fail(`${showShape(input)} cannot become ${showShape(dims)}`)
  return result
}

function squeeze(ctx: ShapeContext): Shape | undefined {
  const shape = ctx.shape(0)
  if (!ctx.has(1)) return shape?.every(isSize) ? shape.filter(dim => !sameSize(dim as Size, 1)) : undefined
  const axes = ctx.numbers(1)
  if (!shape || !axes) return undefined
  const gone = new Set(axes.map(axis => ctx.axis(axis, shape.length)))
  for (const axis of gone) {
    if (!compatible(shape[axis]!, 1)) throw ctx.fail(`axis ${axis} of ${showShape(shape)} is not 1`)
  }
  return shape.filter((_, i) => !gone.has(i))
}

function unsqueeze(ctx: ShapeContext): Shape | undefined {
  const shape = ctx.shape(0)
  const count = listLength(ctx, 1) ?? (ctx.known(1) ? 1 : undefined)
  if (!shape || count === undefined) return undefined
  const rank = shape.length + count
  const axes = ctx.numbers(1)
  if (!axes) return unknownShape(rank)
  const added = new Set(axes.map(axis => ctx.axis(axis, rank)))
  if (added.size !== axes.length) throw ctx.fail(`axes [${axes.join(', ')}] repeat one`)
  const rest = shape[Symbol.iterator]()
  return Array.from({ length: rank }, (_, i) => (added.has(i) ? 1 : (rest.next().value as SymbolicDimension)))
}

function transpose(ctx: ShapeContext): Shape | undefined {
  const shape = ctx.shape(0)
  const perm = ctx.ints('perm')
  if (!shape) return perm && unknownShape(perm.length)
  if (!perm) return [...shape].reverse()
  if (perm.length !== shape.length || new Set(perm).size !== perm.length) {
    throw ctx.fail(`perm [${perm.join(', ')}] does not permute ${showShape(shape)}`)
  }
  return perm.map(axis => shape[ctx.axis(axis, shape.length)]!)
}

function expand(ctx: ShapeContext): Shape | undefined {
  const wanted = shapeFrom(ctx, 1)
  return wanted && ctx.broadcast([ctx.shape(0), wanted])
}

function flatten(ctx: ShapeContext): Shape | undefined {
  const shape = ctx.shape(0)
  if (!shape) return [null, null]
  const axis = ctx.int('axis')
  const at = axis === shape.length ? axis : ctx.axis(axis, Math.max(1, shape.length))
  return [flatSize(shape.slice(0, at)), flatSize(shape.slice(at))]
}

function shapeOf(ctx: ShapeContext): Shape {
  const shape = ctx.shape(0)
  if (!shape) return [null]
  const [first, last] = sliceBounds(
    shape.length,
    ctx.int('start'),
    givenInt(ctx.node, 'end') ?? shape.length,
    1,
  )
  return [Math.max(0, last - first)]
}

/** Space to depth (factor < 1) and back: channels and the two last dimensions trade sizes. */
const blocks = (toDepth: boolean) =>
  moved(ctx => {
    const shape = ctx.shape(0)
    const size = ctx.int('blocksize')
    if (shape?.length !== 4) return unknownShape(4)
    const [n, c, h, w] = shape as readonly [
      SymbolicDimension,
      SymbolicDimension,
      SymbolicDimension,
      SymbolicDimension,
    ]
    const larger = (dim: SymbolicDimension, factor: number): SymbolicDimension =>
      isSize(dim) ? multiply(dim, factor) : null
    const smaller = (dim: SymbolicDimension, factor: number): SymbolicDimension => {
      if (!isSize(dim)) return null
      const part = exactDivide(dim, factor)
      if (part === undefined) throw ctx.fail(`its input is ${showShape(shape)}: ${size} does not divide it`)
      return part
    }
    const area = size * size
    return toDepth
      ? [n, larger(c, area), smaller(h, size), smaller(w, size)]
      : [n, smaller(c, area), larger(h, size), larger(w, size)]
  })

/** Blocks of a power of their size in the channels, and of an image of two dimensions. */
const expectBlocks: Check = ctx => {
  const x = ctx.shape(0)
  if (x && x.length !== 4) throw ctx.fail(`its input is ${showShape(x)}; it must have 4 dimensions`)
  const size = givenInt(ctx.node, 'blocksize') ?? 0
  if (size < 1) throw ctx.fail(`blocksize is ${size}; it must be at least 1`)
}

/** The first input's elements in the shape of the output. */
const relabelled: ValueRule = (ctx, [type]) => {
  const [known, shape] = [ctx.known(0), smallShape(type)]
  return known && shape ? [{ shape, elements: known.elements }] : []
}

const transposedValues: ValueRule = (ctx, [type]) => {
  const [data, shape] = [ctx.known(0), smallShape(type)]
  if (!data || !shape) return []
  const perm = ctx.ints('perm') ?? data.shape.map((_, i) => data.shape.length - 1 - i)
  return [remap(data, shape, position => data.shape.map((_, axis) => position[perm.indexOf(axis)]!))]
}

const shapeValues: ValueRule = (ctx, [type]) => {
  const [shape, size] = [ctx.shape(0), smallShape(type)]
  if (!shape || !size) return []
  const [first] = sliceBounds(shape.length, ctx.int('start'), shape.length, 1)
  return [{ shape: size, elements: shape.slice(first, first + size[0]!) }]
}

const sizeValues: ValueRule = (ctx, _) => {
  const sizes = ctx.shape(0)
  return sizes?.every(isSize) ? [{ shape: [], elements: [multiply(...(sizes as readonly Size[]))] }] : []
}

const expandedValues: ValueRule = (ctx, [type]) => {
  const [known, shape] = [ctx.known(0), smallShape(type)]
  if (!known || !shape) return []
  const count = numel(shape)
  return [
    { shape, elements: Array.from({ length: count }, (_, flat) => broadcastElement(known, shape, flat)) },
  ]
}

/** Rows of operators that keep all elements. */
export const reshaping: OperatorTable = {
  '': {
    Identity: { shape: sameAsFirst, values: relabelled },
    Reshape: { shape: moved(reshape), integers: [1], values: relabelled },
    Flatten: { shape: moved(flatten), values: relabelled },
    Squeeze: { shape: moved(squeeze), integers: [1], values: relabelled },
    Unsqueeze: { shape: moved(unsqueeze), integers: [1], values: relabelled },
    Transpose: { shape: moved(transpose), values: transposedValues },
    Expand: { shape: moved(expand), integers: [1], values: expandedValues },
    DepthToSpace: { shape: blocks(false), check: expectBlocks, choices: { mode: ['DCR', 'CRD'] } },
    SpaceToDepth: { shape: blocks(true), check: expectBlocks },
    Shape: { shape: ctx => [tensorOrUnknown('i64', shapeOf(ctx))], values: shapeValues },
    Size: { shape: () => [tensorOrUnknown('i64', [])], values: sizeValues },
  },
}
