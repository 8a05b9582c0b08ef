// slice.ts: parts of frozen weights, in their own format: no block is cut, and nothing is decoded.

import { type FilePart, filePieces } from './file-parts.js'
import { formatInfo } from './formats.js'
import { bytesOfRows, changedWhenRead, isLazy, type LazyWeight } from './lazy-weight.js'
import { inRows } from './panels.js'
import { lengthOf, type Range } from './range.js'
import { arraysOf, type Weight } from './weight.js'

/** Why a weight cannot be cut at these columns; undefined where it can. Rows can be cut anywhere but in squares. */
export function whyUncut(
  { format }: Pick<Weight, 'format'>,
  rows: readonly Range[] | undefined,
  cols: readonly Range[] | undefined,
): string | undefined {
  const { block, scales } = formatInfo(format)
  if (scales === 'square' && (rows || cols)) return `its scales are those of squares (${format})`
  const inside = cols?.find(({ begin, end }) => begin % block !== 0 || end % block !== 0)
  return (
    inside &&
    `columns ${inside.begin} to ${inside.end} begin or end inside of a block of ${block} (${format})`
  )
}

/** Some rows or columns of a weight, all where they are left out; read when it is read where its elements are in a file. */
export function sliceWeight(
  weight: Weight | LazyWeight,
  rows: readonly Range[] | undefined,
  cols: readonly Range[] | undefined,
): Weight | LazyWeight {
  const [height, width] = [rows ? lengthOf(rows) : weight.rows, cols ? lengthOf(cols) : weight.cols]
  const cut = (whole: Weight): Weight => {
    const kept = inRows(whole)
    const { block } = formatInfo(kept.format)
    const pieces = (each: number, unit: number | undefined): readonly Range[] =>
      cols && unit !== undefined
        ? cols.map(({ begin, end }) => ({ begin: (begin / block) * unit, end: (end / block) * unit }))
        : [{ begin: 0, end: each }]
    const arrays = arraysOf(kept).map(([name, array]) => {
      const each = array.length / kept.rows
      // A row has its blocks one after the other, or one scale.
      const unit = name === 'rowScale' ? undefined : (each * block) / kept.cols
      return [
        name,
        sliceArray(array, each, rows ?? [{ begin: 0, end: kept.rows }], pieces(each, unit)),
      ] as const
    })
    const { owner: _, ...fields } = kept
    return { ...fields, ...Object.fromEntries(arrays), rows: height, cols: width } as Weight
  }
  if (!isLazy(weight)) return cut(weight)
  const fileParts = slicedParts(weight, rows, cols)
  return { ...changedWhenRead(weight, height, width, cut), ...(fileParts && { fileParts }) }
}

/** Where the rows are in files; all of them for columns, which lie between those of others. */
function slicedParts(
  weight: LazyWeight,
  rows: readonly Range[] | undefined,
  cols: readonly Range[] | undefined,
): readonly FilePart[] | undefined {
  const { fileParts } = weight
  const bytes = bytesOfRows(weight, 1)
  const inRows = fileParts?.reduce((sum, { byteLength }) => sum + byteLength, 0) === weight.rows * bytes
  if (!fileParts || !rows || cols || !inRows) return fileParts
  return filePieces(
    fileParts,
    rows.map(({ begin, end }) => ({ begin: begin * bytes, end: end * bytes })),
  )
}

function sliceArray<A extends Float32Array | Uint8Array>(
  array: A,
  each: number,
  rows: readonly Range[],
  pieces: readonly Range[],
): A {
  const sliced = new (array.constructor as new (count: number) => A)(lengthOf(rows) * lengthOf(pieces))
  let at = 0
  for (const { begin, end } of rows)
    for (let row = begin; row < end; row++)
      for (const piece of pieces) {
        sliced.set(array.subarray(row * each + piece.begin, row * each + piece.end) as never, at)
        at += piece.end - piece.begin
      }
  return sliced
}
