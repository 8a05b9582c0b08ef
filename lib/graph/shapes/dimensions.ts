// dimensions.ts: arithmetic of sizes that may be unknown.
import type { Dimension } from '../graph.js'

/** Sizes of all dimensions. */
export type Shape = readonly Dimension[]

/**
 * The shape to which shapes broadcast; undefined when one of them is unknown.
 * @returns null for sizes that do not fit together
 */
export function broadcastShapes(shapes: readonly (Shape | undefined)[]): Shape | undefined | null {
  let result: Shape = []
  for (const shape of shapes) {
    if (!shape) return undefined
    const rank = Math.max(result.length, shape.length)
    const dims: Dimension[] = []
    for (let i = 0; i < rank; i++) {
      const a = dimensionFromEnd(result, rank - i)
      const b = dimensionFromEnd(shape, rank - i)
      const both = broadcastDimension(a, b)
      if (both === undefined) return null
      dims.push(both)
    }
    result = dims
  }
  return result
}

/** The size `i` places before the end; 1 before the first one. */
function dimensionFromEnd(shape: Shape, i: number): Dimension {
  return i > shape.length ? 1 : shape[shape.length - i]!
}

function broadcastDimension(a: Dimension, b: Dimension): Dimension | undefined {
  if (a === b || b === 1) return a
  if (a === 1) return b
  // What is not 1 and known decides: the other one is 1 or the same.
  if (typeof a === 'number') return typeof b === 'number' ? undefined : a
  return typeof b === 'number' ? b : null
}

/** Whether two sizes can be the same. */
export function compatible(a: Dimension, b: Dimension): boolean {
  return typeof a !== 'number' || typeof b !== 'number' || a === b
}

/** What is known of a size from two sources. */
export function mergeDimension(a: Dimension, b: Dimension): Dimension {
  if (typeof a === 'number') return a
  return b === null ? a : typeof b === 'number' || a === null ? b : a
}

/** Product of sizes; null when one is unknown and none is 0. */
export function product(dims: readonly Dimension[]): number | null {
  if (dims.includes(0)) return 0
  let result = 1
  for (const dim of dims) {
    if (typeof dim !== 'number') return null
    result *= dim
  }
  return result
}

/** A product that keeps the name of the only size that is not known, when the others are 1. */
export function flatSize(dims: readonly Dimension[]): Dimension {
  const others = dims.filter(dim => dim !== 1)
  return others.length === 1 ? others[0]! : product(dims)
}

/** A shape of which only the number of dimensions is known. */
export function unknownShape(rank: number): Shape {
  return Array<null>(rank).fill(null)
}

/** Start and end of a slice as indices into `size` elements; the end may be -1 for a negative step. */
export function sliceBounds(size: number, start: number, end: number, step: number): [number, number] {
  const clamp = (value: number, low: number, high: number): number =>
    Math.min(high, Math.max(low, value < 0 ? value + size : value))
  return step > 0
    ? [clamp(start, 0, size), clamp(end, 0, size)]
    : [clamp(start, 0, size - 1), clamp(end, -1, size - 1)]
}
