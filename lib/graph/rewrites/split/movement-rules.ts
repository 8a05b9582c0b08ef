// movement-rules.ts: parts of what operators only move.
import { multiply, type Size, sameSize } from '../../../core/size.js'
import { givenInt, intOf, intsOf } from '../../attributes.js'
import type { SplitFacts } from './facts.js'
import { type Layout, plain, sizeOf } from './layout.js'
import type { Part, SplitRule, SplitRules } from './part.js'

const positive = (axis: number, rank: number): number => (axis + rank) % rank

type Shape = readonly (Size | undefined)[]

/** Product of the sizes in front of an axis. */
function before(shape: Shape, axis: number): Size | undefined {
  const sizes = shape.slice(0, axis)
  return sizes.every(size => size !== undefined) ? multiply(...(sizes as Size[])) : undefined
}

/**
 * The layout of the input of a Reshape: both axes cut the same elements where as many lie in front of them, and in equal parts
 * where ranks divide them.
 */
function reshaped(from: Shape, to: Shape, layout: Layout, facts: SplitFacts): Layout | undefined {
  const front = before(to, layout.axis)
  if (front === undefined) return undefined
  const axes = from.flatMap((_, axis) => {
    const own = before(from, axis)
    return own !== undefined && sameSize(own, front) ? [axis] : []
  })
  const same = axes.find(axis => from[axis] !== undefined && sameSize(from[axis]!, sizeOf(layout)))
  if (same !== undefined) return { ...layout, axis: same }
  if (layout.segments.length > 1) return undefined
  const axis = axes.find(axis => facts.divides(typeof from[axis] === 'number' ? from[axis] : undefined))
  return axis === undefined ? undefined : plain(axis, from[axis] as number)
}

/** The shape of the part that a Reshape makes: numbers, 0 for that of the input, one −1. */
function partShape(
  from: Shape,
  to: Shape,
  input: Layout,
  layout: Layout,
  world: number,
): number[] | undefined {
  let unknown = 0
  const shape = to.map((size, axis) => {
    if (axis === layout.axis) return sizeOf(layout) / world
    if (typeof size === 'number' && size > 0) return size
    if (axis !== input.axis && size !== undefined && from[axis] !== undefined && sameSize(from[axis]!, size))
      return 0
    unknown++
    return -1
  })
  return unknown > 1 ? undefined : shape
}

const reshape: SplitRule = (node, _, layout, facts) => {
  const [from, to] = [facts.shape(node.inputs[0]!), facts.shape(node.outputs[0]!)]
  if (!from || !to || (givenInt(node, 'allowzero') ?? 0) !== 0) return undefined
  const input = reshaped(from, to, layout, facts)
  if (!input) return undefined
  const part = { inputs: [input, undefined], outputs: [layout] }
  const shape = partShape(from, to, input, layout, facts.world)
  if (shape) return { ...part, constants: new Map([[1, shape]]) }
  // A 0 in the shape would copy the size of a part.
  const [own, made] = [from[input.axis], to[input.axis]]
  if (input.axis !== layout.axis && (own === undefined || made === undefined || sameSize(own, made)))
    return undefined
  return { ...part, element: { input: 1, at: layout.axis, value: sizeOf(layout) / facts.world } }
}

/** Flatten, Squeeze, Unsqueeze: their axes stay. */
const sameAxes: SplitRule = (node, _, layout, facts) => {
  const [from, to] = [facts.shape(node.inputs[0]!), facts.shape(node.outputs[0]!)]
  const input = from && to && reshaped(from, to, layout, facts)
  return input && { inputs: [input], outputs: [layout] }
}

const transpose: SplitRule = (node, _, layout, facts) => {
  const rank = facts.shape(node.inputs[0]!)?.length ?? 0
  const axis = (intsOf(node, 'perm') ?? Array.from({ length: rank }, (_, i) => rank - 1 - i))[layout.axis]
  return axis === undefined ? undefined : { inputs: [{ ...layout, axis }], outputs: [layout] }
}

/** The segments of a joined axis are those of its parts. */
const split: SplitRule = (node, o, layout, facts) => {
  const rank = facts.shape(node.inputs[0]!)?.length
  if (rank === undefined) return undefined
  if (positive(intOf(node, 'axis'), rank) !== layout.axis)
    return {
      inputs: [layout, undefined],
      outputs: node.outputs.map(name => (name === '' ? undefined : layout)),
    }
  const sizes = node.outputs.map(name => facts.size(name, layout.axis))
  if (!sizes.every(size => facts.divides(size))) return undefined
  const outputs = sizes.map((size, i) => (i === o ? layout : plain(layout.axis, size!)))
  const segments = outputs.flatMap(output => output.segments)
  const parts = node.inputs[1] ? new Map([[1, sizes.map(size => size! / facts.world)]]) : undefined
  return { inputs: [{ axis: layout.axis, segments }, undefined], outputs, ...(parts && { constants: parts }) }
}

const concat: SplitRule = (node, _, layout, facts) => {
  const rank = facts.shape(node.outputs[0]!)?.length
  if (rank === undefined) return undefined
  if (positive(intOf(node, 'axis'), rank) !== layout.axis)
    return { inputs: node.inputs.map(() => layout), outputs: [layout] }
  const sizes = node.inputs.map(name => facts.size(name, layout.axis))
  if (`${sizes}` !== `${layout.segments}`) return undefined
  return { inputs: sizes.map(size => plain(layout.axis, size!)), outputs: [layout] }
}

const slice: SplitRule = (node, _, layout, facts) => {
  const rank = facts.shape(node.inputs[0]!)?.length
  const count = facts.shape(node.inputs[1]!)?.[0]
  if (rank === undefined || typeof count !== 'number') return undefined
  const axes = node.inputs[3] ? facts.integers(node.inputs[3]) : Array.from({ length: count }, (_, i) => i)
  if (!axes || axes.some(axis => positive(axis, rank) === layout.axis)) return undefined
  return { inputs: [layout], outputs: [layout] }
}

const gather: SplitRule = (node, _, layout, facts) => {
  const [data, indices] = node.inputs.map(name => facts.shape(name)?.length)
  if (data === undefined || indices === undefined) return undefined
  const axis = positive(intOf(node, 'axis'), data)
  if (layout.axis < axis) return { inputs: [layout], outputs: [layout] }
  if (layout.axis < axis + indices)
    return { inputs: [undefined, { ...layout, axis: layout.axis - axis }], outputs: [layout] }
  return { inputs: [{ ...layout, axis: layout.axis - indices + 1 }], outputs: [layout] }
}

/** The target shape is that of the part; 1 keeps what the input has. */
const expand: SplitRule = (node, _, layout, facts) => {
  const [from, to] = [facts.shape(node.inputs[0]!), facts.shape(node.outputs[0]!)]
  if (!from || !to) return undefined
  const own = layout.axis - (to.length - from.length)
  const isWhole = own < 0 || from[own] === 1
  if (!isWhole && (from[own] === undefined || !sameSize(from[own]!, sizeOf(layout)))) return undefined
  const shape = to.map((size, axis) => {
    const source = from[axis - (to.length - from.length)]
    if (axis === layout.axis) return sizeOf(layout) / facts.world
    if (typeof size === 'number') return size
    return size !== undefined && source !== undefined && sameSize(source, size) ? 1 : -1
  })
  if (shape.includes(-1)) return undefined
  const part: Part = { inputs: [isWhole ? undefined : { ...layout, axis: own }], outputs: [layout] }
  return { ...part, constants: new Map([[1, shape]]) }
}

const reduce: SplitRule = (node, _, layout, facts) => {
  const rank = facts.shape(node.inputs[0]!)?.length
  const given = node.inputs[1] ? facts.integers(node.inputs[1]) : undefined
  if (rank === undefined || !given) return undefined
  const axes = given.map(axis => positive(axis, rank))
  const kept = Array.from({ length: rank }, (_, i) => i).filter(
    i => intOf(node, 'keepdims') || !axes.includes(i),
  )
  const axis = kept[layout.axis]
  if (axis === undefined || axes.includes(axis)) return undefined
  return { inputs: [{ ...layout, axis }], outputs: [layout] }
}

const pad: SplitRule = (node, _, layout, facts) => {
  const rank = facts.shape(node.inputs[0]!)?.length ?? 0
  const pads = facts.integers(node.inputs[1])
  const axes = node.inputs[3] ? facts.integers(node.inputs[3]) : Array.from({ length: rank }, (_, i) => i)
  const i = axes?.findIndex(axis => positive(axis, rank) === layout.axis)
  if (!pads || i === undefined) return undefined
  const isKept = i < 0 || (pads[i] === 0 && pads[i + axes!.length] === 0)
  return isKept ? { inputs: [layout], outputs: [layout] } : undefined
}

/** Rules of what moves elements, and of reductions. */
export const movementRules: SplitRules = {
  ...{ Reshape: reshape, Flatten: sameAxes, Squeeze: sameAxes, Unsqueeze: sameAxes, Transpose: transpose },
  ...{ Split: split, Concat: concat, Slice: slice, Gather: gather, Expand: expand, Pad: pad },
  ...{ ReduceSum: reduce, ReduceMean: reduce, ReduceMax: reduce, ReduceMin: reduce, ReduceL2: reduce },
}
