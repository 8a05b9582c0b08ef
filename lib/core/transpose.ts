// transpose.ts: matrix transposition.
import type { ElementArray } from './dtype.js'

/** A new array with the rows of a row-major [rows, cols] matrix as its columns: [cols, rows]. */
export function transpose<Elements extends ElementArray>(
  values: Elements,
  rows: number,
  cols: number,
): Elements {
  const result = values.slice() as Elements
  for (let row = 0; row < rows; row++) {
    for (let col = 0; col < cols; col++) result[col * rows + row] = values[row * cols + col]!
  }
  return result
}
