// layout.ts: shapes of operators that move elements without computing: reshape, slice, pad, join.
import { stringOf, tensorOf } from '../attributes.js'
import type { Dimension } from '../graph.js'
import { type Call, type Rule, showShape, showShapes, tensorOrUnknown } from './call.js'
import { compatible, flatSize, mergeDimension, product, type Shape, unknownShape } from './dimensions.js'

/** Dimensions a tensor may have at most. */
const maxRank = 64

/** Length of input `i`, a list: how many axes, sizes or repeats there are. */
function listLength(call: Call, i: number): number | undefined {
  const length = call.shape(i)?.[0]
  if (typeof length !== 'number') return undefined
  if (length > maxRank)
    throw call.fail(`input ${i} lists ${length} dimensions; a tensor has at most ${maxRank}`)
  return length
}

/** The shape that input `i` spells out, as far as it is known. */
function shapeFrom(call: Call, i: number): Shape | undefined {
  const known = call.known(i)
  if (known) return known.elements
  const rank = listLength(call, i)
  return rank === undefined ? undefined : unknownShape(rank)
}

function reshape(call: Call): Shape | undefined {
  const wanted = shapeFrom(call, 1)
  const input = call.shape(0)
  if (!wanted) return undefined
  const copyZeros = call.int('allowzero', 0) === 0
  const dims = wanted.map((dim, i) => (dim === 0 && copyZeros ? (input?.[i] ?? null) : dim))
  const open = dims.indexOf(-1)
  if (dims.indexOf(-1, open + 1) > open && open >= 0)
    throw call.fail(`shape ${showShape(wanted)} has two times -1`)
  if (open >= 0) dims[open] = input ? remainder(call, input, dims, open) : null
  const [before, after] = [input ? product(input) : null, product(dims)]
  if (before !== null && after !== null && before !== after) {
    throw call.fail(`${showShape(input)} cannot become ${showShape(dims)}`)
  }
  return dims
}

/** Size that makes up for the rest of the elements; sizes of the same name cancel out. */
function remainder(call: Call, input: Shape, dims: Dimension[], open: number): Dimension {
  const left = [...input]
  const right = dims.filter((_, i) => i !== open)
  for (const dim of [...right]) {
    if (typeof dim !== 'string' || !left.includes(dim)) continue
    left.splice(left.indexOf(dim), 1)
    right.splice(right.indexOf(dim), 1)
  }
  const divisor = product(right)
  const names = left.filter(dim => typeof dim !== 'number')
  if (names.length === 1 && divisor === product(left.filter(dim => typeof dim === 'number'))) return names[0]!
  if (divisor === 1) return flatSize(left)
  const total = product(left)
  if (total === null || divisor === null || divisor === 0) return divisor === 0 ? 0 : null
  if (total % divisor !== 0) throw call.fail(`${showShape(input)} cannot become ${showShape(dims)}`)
  return total / divisor
}

function squeeze(call: Call): Shape | undefined {
  const shape = call.shape(0)
  if (!call.has(1))
    return shape?.every(dim => typeof dim === 'number') ? shape.filter(dim => dim !== 1) : undefined
  const axes = call.numbers(1)
  if (!shape || !axes) return undefined
  const gone = new Set(axes.map(axis => call.axis(axis, shape.length)))
  for (const axis of gone) {
    if (!compatible(shape[axis]!, 1)) throw call.fail(`axis ${axis} of ${showShape(shape)} is not 1`)
  }
  return shape.filter((_, i) => !gone.has(i))
}

function unsqueeze(call: Call): Shape | undefined {
  const shape = call.shape(0)
  const count = listLength(call, 1) ?? (call.known(1) ? 1 : undefined)
  if (!shape || count === undefined) return undefined
  const rank = shape.length + count
  const axes = call.numbers(1)
  if (!axes) return unknownShape(rank)
  const added = new Set(axes.map(axis => call.axis(axis, rank)))
  if (added.size !== axes.length) throw call.fail(`axes [${axes.join(', ')}] repeat one`)
  const rest = shape[Symbol.iterator]()
  return Array.from({ length: rank }, (_, i) => (added.has(i) ? 1 : (rest.next().value as Dimension)))
}

function transpose(call: Call): Shape | undefined {
  const shape = call.shape(0)
  const perm = call.ints('perm')
  if (!shape) return perm && unknownShape(perm.length)
  if (!perm) return [...shape].reverse()
  if (perm.length !== shape.length || new Set(perm).size !== perm.length) {
    throw call.fail(`perm [${perm.join(', ')}] does not permute ${showShape(shape)}`)
  }
  return perm.map(axis => shape[call.axis(axis, shape.length)]!)
}

function concat(call: Call): Shape | undefined {
  const shapes = call.shapes()
  const first = shapes.find(shape => shape)
  if (!first) return undefined
  const axis = call.axis(call.int('axis', 0), first.length)
  const result: Dimension[] = [...first]
  for (const shape of shapes) {
    if (!shape) continue
    const fits =
      shape.length === first.length && shape.every((dim, i) => i === axis || compatible(dim, result[i]!))
    if (!fits) throw call.fail(`${showShapes(shapes)} cannot be joined along axis ${axis}`)
    for (const [i, dim] of shape.entries()) result[i] = mergeDimension(result[i]!, dim)
  }
  const sizes = shapes.map(shape => shape?.[axis] ?? null)
  result[axis] = sizes.length === 1 ? sizes[0]! : sum(sizes)
  return result
}

function sum(sizes: readonly Dimension[]): Dimension {
  const others = sizes.filter(size => size !== 0)
  if (others.length === 1) return others[0]!
  return others.every(size => typeof size === 'number') ? others.reduce((a, b) => a + b, 0) : null
}

const split: Rule = call => {
  const shape = call.shape(0)
  const dtype = call.dtype(0)
  const count = call.node.outputs.length
  if (!shape) return Array.from({ length: count }, () => tensorOrUnknown(dtype, undefined))
  const axis = call.axis(call.int('axis', 0), shape.length)
  const size = shape[axis]!
  const parts = call.int('num_outputs', count)
  const chunk = typeof size === 'number' ? Math.ceil(size / parts) : null
  const sizes = call.has(1)
    ? (call.known(1)?.elements ?? [])
    : Array.from({ length: count }, (_, i) =>
        chunk === null ? null : Math.max(0, Math.min(chunk, (size as number) - i * chunk)),
      )
  const total = product(sizes.length === 0 ? [null] : sizes) === null ? null : sum(sizes)
  if (call.has(1) && total !== null && !compatible(total, size)) {
    throw call.fail(`parts [${sizes.join(', ')}] do not add up to ${size}`)
  }
  return Array.from({ length: count }, (_, i) =>
    tensorOrUnknown(dtype, withDimension(shape, axis, sizes[i] ?? null)),
  )
}

/** `shape` with another size along `axis`. */
export function withDimension(shape: Shape, axis: number, size: Dimension): Shape {
  return shape.map((dim, i) => (i === axis ? size : dim))
}

function slice(call: Call): Shape | undefined {
  const shape = call.shape(0)
  if (!shape) return undefined
  const [starts, ends] = [call.numbers(1), call.numbers(2)]
  const count = listLength(call, 1) ?? 0
  const axes = call.has(3) ? call.numbers(3) : Array.from({ length: count }, (_, i) => i)
  const steps = call.has(4) ? call.numbers(4) : Array<number>(count).fill(1)
  if (!axes) return unknownShape(shape.length)
  const result = [...shape]
  for (const [i, axis] of axes.entries()) {
    const at = call.axis(axis, shape.length)
    const dim = shape[at]!
    const [start, end, step] = [starts?.[i], ends?.[i], steps?.[i]]
    if (step === 0) throw call.fail('a step is 0')
    result[at] =
      start === undefined || end === undefined || step === undefined ? null : sliceSize(dim, start, end, step)
  }
  return result
}

function sliceSize(dim: Dimension, start: number, end: number, step: number): Dimension {
  if (typeof dim !== 'number') return start === 0 && step === 1 && end >= 2 ** 31 - 1 ? dim : null
  const [first, last] = sliceBounds(dim, start, end, step)
  return Math.max(0, Math.ceil((last - first) / step))
}

/** Start and end of a slice as indices into `size` elements; the end may be -1 for a negative step. */
export function sliceBounds(size: number, start: number, end: number, step: number): [number, number] {
  const clamp = (value: number, low: number, high: number): number =>
    Math.min(high, Math.max(low, value < 0 ? value + size : value))
  return step > 0
    ? [clamp(start, 0, size), clamp(end, 0, size)]
    : [clamp(start, 0, size - 1), clamp(end, -1, size - 1)]
}

function pad(call: Call): Shape | undefined {
  const shape = call.shape(0)
  if (!shape) return undefined
  const pads = call.numbers(1)
  const axes = call.has(3) ? call.numbers(3) : shape.map((_, i) => i)
  if (!pads || !axes) return unknownShape(shape.length)
  if (pads.length !== 2 * axes.length) throw call.fail(`${pads.length} pads for ${axes.length} axes`)
  const repeats = stringOf(call.node, 'mode', 'constant') !== 'constant'
  const result = [...shape]
  for (const [i, axis] of axes.entries()) {
    const at = call.axis(axis, shape.length)
    const added = pads[i]! + pads[i + axes.length]!
    const dim = shape[at]!
    if (dim === 0 && added > 0 && repeats) throw call.fail(`axis ${at} has no elements to be padded with`)
    result[at] = typeof dim === 'number' ? Math.max(0, dim + added) : added === 0 ? dim : null
  }
  return result
}

function expand(call: Call): Shape | undefined {
  const wanted = shapeFrom(call, 1)
  return wanted && call.broadcast([call.shape(0), wanted])
}

function tile(call: Call): Shape | undefined {
  const shape = call.shape(0)
  const repeats = call.known(1)?.elements
  if (!shape || !repeats) return shape && unknownShape(shape.length)
  return shape.map((dim, i) => {
    const times = repeats[i] ?? null
    if (dim === 1) return times
    return times === 1 ? dim : product([dim, times])
  })
}

function flatten(call: Call): Shape | undefined {
  const shape = call.shape(0)
  if (!shape) return [null, null]
  const axis = call.int('axis', 1)
  const at = axis === shape.length ? axis : call.axis(axis, Math.max(1, shape.length))
  return [flatSize(shape.slice(0, at)), flatSize(shape.slice(at))]
}

function shapeOf(call: Call): Shape {
  const shape = call.shape(0)
  if (!shape) return [null]
  const [first, last] = sliceBounds(shape.length, call.int('start', 0), call.int('end', shape.length), 1)
  return [Math.max(0, last - first)]
}

/** A rule for one output of the first input's element type. */
const moved =
  (shape: (call: Call) => Shape | undefined): Rule =>
  call => [tensorOrUnknown(call.dtype(0), shape(call))]

/** Space to depth (factor < 1) and back: channels and the two last dimensions trade sizes. */
const blocks = (toDepth: boolean) =>
  moved(call => {
    const shape = call.shape(0)
    const size = call.int('blocksize', 1)
    if (shape?.length !== 4) return unknownShape(4)
    const [n, c, h, w] = shape as readonly [Dimension, Dimension, Dimension, Dimension]
    const scale = (dim: Dimension, factor: number): Dimension =>
      typeof dim === 'number' ? dim * factor : null
    const [depth, side] = toDepth ? [size * size, 1 / size] : [1 / (size * size), size]
    return [n, scale(c, depth), scale(h, side), scale(w, side)]
  })

/** Rules by operator. */
export const layoutRules: Readonly<Record<string, Rule>> = {
  Reshape: moved(reshape),
  Squeeze: moved(squeeze),
  Unsqueeze: moved(unsqueeze),
  Transpose: moved(transpose),
  Concat: call => [tensorOrUnknown(call.commonDtype(), concat(call))],
  Split: split,
  Slice: moved(slice),
  Pad: moved(pad),
  Expand: moved(expand),
  Tile: moved(tile),
  Flatten: moved(flatten),
  DepthToSpace: blocks(false),
  SpaceToDepth: blocks(true),
  Shape: call => [tensorOrUnknown('i64', shapeOf(call))],
  Size: () => [tensorOrUnknown('i64', [])],
  CenterCropPad: moved(call => {
    const shape = call.shape(0)
    const sizes = shapeFrom(call, 1)
    const axes = call.ints('axes') ?? shape?.map((_, i) => i)
    if (!shape || !sizes || !axes) return undefined
    return axes.reduce<Shape>(
      (result, axis, i) => withDimension(result, call.axis(axis, shape.length), sizes[i] ?? null),
      shape,
    )
  }),
  Constant: call => {
    const value = tensorOf(call.node, 'value')
    return [value && tensorOrUnknown(value.dtype, value.shape)]
  },
  ConstantOfShape: call => [
    tensorOrUnknown(tensorOf(call.node, 'value')?.dtype ?? 'f32', shapeFrom(call, 0)),
  ],
  Range: call => {
    const [start, limit, delta] = [call.numbers(0)?.[0], call.numbers(1)?.[0], call.numbers(2)?.[0]]
    const known = start !== undefined && limit !== undefined && delta !== undefined
    if (delta === 0) throw call.fail('delta is 0')
    return [tensorOrUnknown(call.dtype(0), [known ? Math.max(0, Math.ceil((limit - start) / delta)) : null])]
  },
  Resize: moved(resize),
  GridSample: moved(call => {
    const [x, grid] = [call.shape(0), call.shape(1)]
    return x && grid ? [...x.slice(0, 2), ...grid.slice(1, -1)] : undefined
  }),
  AffineGrid: moved(call => {
    const size = shapeFrom(call, 1)
    return size && [size[0] ?? null, ...size.slice(2), size.length - 2]
  }),
}

const smaller = (a: number, b: number): number => Math.min(a, b)
const larger = (a: number, b: number): number => Math.max(a, b)

function resize(call: Call): Shape | undefined {
  const shape = call.shape(0)
  if (!shape) return undefined
  const axes = call.ints('axes')?.map(axis => call.axis(axis, shape.length)) ?? shape.map((_, i) => i)
  const result = [...shape]
  const sizes = call.has(3) ? call.known(3)?.elements : undefined
  const scales = call.has(2) ? call.numbers(2) : undefined
  const policy = stringOf(call.node, 'keep_aspect_ratio_policy', 'stretch')
  const ratios = axes.map((axis, i) => Number(sizes?.[i]) / Number(shape[axis]))
  const common = ratios.reduce(policy === 'not_larger' ? smaller : larger, ratios[0] ?? 1)
  for (const [i, axis] of axes.entries()) {
    const dim = shape[axis]!
    if (sizes && policy === 'stretch') result[axis] = sizes[i] ?? null
    else if (sizes) result[axis] = Number.isNaN(common) ? null : Math.round(common * Number(dim))
    else if (scales)
      result[axis] = typeof dim === 'number' ? Math.floor(dim * scales[i]!) : scales[i] === 1 ? dim : null
    else result[axis] = null
  }
  return result
}
