// layout.ts: how a value is cut into the parts of the ranks.
import type { Range } from '../../../weights/range.js'

/**
 * A value of which each rank has a part along one axis. The axis is a list of segments, such as queries, keys and values, each of
 * which is cut into as many equal parts as there are ranks.
 */
export interface Layout {
  readonly axis: number
  /** Sizes of the segments: their sum is that of the axis. */
  readonly segments: readonly number[]
}

/** Which rank of how many. */
export interface Seat {
  readonly rank: number
  readonly world: number
}

/** A layout of one segment. */
export const plain = (axis: number, size: number): Layout => ({ axis, segments: [size] })

/** Elements of the axis. */
export const sizeOf = ({ segments }: Layout): number => segments.reduce((sum, size) => sum + size, 0)

/** Whether two values are cut in the same way. */
export const sameLayout = (a: Layout, b: Layout): boolean =>
  a.axis === b.axis && `${a.segments}` === `${b.segments}`

/** Where the part of a rank is: ranges of the axis. */
export function rangesOf({ segments }: Layout, { rank, world }: Seat): Range[] {
  let start = 0
  return segments.map(size => {
    const range = { begin: start + (rank * size) / world, end: start + ((rank + 1) * size) / world }
    start += size
    return range
  })
}

/** The part of a rank of rows that need not divide evenly. */
export const unevenRange = (size: number, { rank, world }: Seat): Range => ({
  begin: Math.floor((rank * size) / world),
  end: Math.floor(((rank + 1) * size) / world),
})
