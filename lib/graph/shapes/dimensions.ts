// dimensions.ts: arithmetic of sizes that may be unknown.
import {
  add,
  isSize,
  lessThan,
  maximum,
  minimum,
  multiply,
  type Size,
  sameSize,
  subtract,
} from '../../core/size.js'
import { maxSymbol } from '../../core/size-scope.js'
import type { SymbolicDimension } from '../graph.js'

/** Sizes of all dimensions. */
export type Shape = readonly SymbolicDimension[]

/**
 * The shape to which shapes broadcast; undefined when one of them is unknown.
 * @returns null for sizes that do not fit together
 */
export function broadcastShapes(shapes: readonly (Shape | undefined)[]): Shape | undefined | null {
  let result: Shape = []
  for (const shape of shapes) {
    if (!shape) return undefined
    const rank = Math.max(result.length, shape.length)
    const dims: SymbolicDimension[] = []
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
function dimensionFromEnd(shape: Shape, i: number): SymbolicDimension {
  return i > shape.length ? 1 : shape[shape.length - i]!
}

function broadcastDimension(a: SymbolicDimension, b: SymbolicDimension): SymbolicDimension | undefined {
  if (a === b || b === 1) return a
  if (a === 1) return b
  if (isSize(a) && isSize(b)) {
    if (sameSize(a, b)) return typeof b === 'number' ? b : a
    if (sameSize(b, 1)) return a
    return sameSize(a, 1) ? b : undefined
  }
  // What is not 1 and known decides: the other one is 1 or the same.
  if (isSize(a)) return a
  return isSize(b) ? b : null
}

/** Whether two sizes can be the same. */
export function compatible(a: SymbolicDimension, b: SymbolicDimension): boolean {
  return !isSize(a) || !isSize(b) || sameSize(a, b)
}

/** What is known of a size from two sources. */
export function mergeDimension(a: SymbolicDimension, b: SymbolicDimension): SymbolicDimension {
  if (typeof a === 'number' || b === null) return a
  return typeof b === 'number' || a === null || (isSize(b) && !isSize(a)) ? b : a
}

/** Product of sizes; null when one is unknown and none is 0. */
export function product(dims: readonly SymbolicDimension[]): Size | null {
  if (dims.includes(0)) return 0
  return dims.every(isSize) ? dims.reduce<Size>((product, size) => multiply(product, size), 1) : null
}

/** A product that keeps the name of the only size that is not known, when the others are 1. */
export function flatSize(dims: readonly SymbolicDimension[]): SymbolicDimension {
  const others = dims.filter(dim => dim !== 1)
  return others.length === 1 ? others[0]! : product(dims)
}

/** A shape of which only the number of dimensions is known. */
export function unknownShape(rank: number): Shape {
  return Array<null>(rank).fill(null)
}

/** Start and end of a slice as indices into `size` elements; the end may be -1 for a negative step. */
export function sliceBounds(size: number, start: number, end: number, step: number): [number, number]
export function sliceBounds(size: Size, start: Size, end: Size, step: number): [Size, Size]
export function sliceBounds(size: Size, start: Size, end: Size, step: number): [Size, Size] {
  const last = subtract(size, 1)
  const clamp = (value: Size, low: Size, high: Size): Size => {
    if (typeof high !== 'number' && typeof value === 'number' && value >= maxSymbol) return high
    return minimum(high, maximum(low, lessThan(value, 0) ? add(value, size) : value))
  }
  return step > 0
    ? [clamp(start, 0, size), clamp(end, 0, size)]
    : [clamp(start, 0, last), clamp(end, -1, last)]
}
