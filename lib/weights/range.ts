// range.ts: neighbours among rows, columns or bytes.

/** Neighbours, from `begin` to before `end`. */
export interface Range {
  readonly begin: number
  readonly end: number
}

/** How many there are in all. */
export const lengthOf = (ranges: readonly Range[]): number =>
  ranges.reduce((sum, { begin, end }) => sum + end - begin, 0)
