// panels.ts: the micro-panel layout of a weight (native/backend/weight.h), in plain TypeScript.
import { packBlocks, panelBytes, panelRows, unpackBlocks } from './blocks/panels.js'
import { isBlockFormat, type WeightSizes, weightFormats, weightSizes } from './formats.js'
import type { Weight } from './weight.js'

export { panelRows } from './blocks/panels.js'

type Shape = Pick<Weight, 'format' | 'rows' | 'cols'>

/** Elements of the arrays of a weight in panels. */
export function panelSizes({ format, rows, cols }: Shape): WeightSizes {
  const panels = Math.ceil(rows / panelRows)
  if (isBlockFormat(format)) return { data: panels * panelBytes(format, cols), rowScale: 0, blockScale: 0 }
  const padded = panels * panelRows
  const { rowScale } = weightSizes(format, rows, cols)
  return { ...weightSizes(format, padded, cols + (format === 'bf16' ? cols % 2 : 0)), rowScale }
}

/** Calls `move` with where each code lies in a row-major matrix of `cols` codes a row and in its panels. */
function eachCode(
  rows: number,
  cols: number,
  group: number,
  move: (plain: number, packed: number) => void,
): void {
  const groups = Math.ceil(cols / group)
  for (let r = 0; r < rows; r++) {
    const lane = r % panelRows
    const panel = ((r - lane) / panelRows) * groups * panelRows * group
    for (let c = 0; c < cols; c++) {
      const within = c % group
      move(r * cols + c, panel + (((c - within) / group) * panelRows + lane) * group + within)
    }
  }
}

/** What is packed: elements of `data` a row, and how many neighbours of a row stay together. */
const codes = ({ format, cols }: Shape): { cols: number; group: number } => {
  const { block, length } = weightFormats[format]
  return { cols: (cols / block) * length, group: format === 'bf16' ? 2 : 1 }
}

/** Blocks of a row. */
const blocks = ({ format, cols }: Shape): number => cols / weightFormats[format].block

const blockScaleOf = (weight: Weight): Uint8Array | undefined =>
  'blockScale' in weight ? weight.blockScale : undefined

/**
 * Writes `weight` in panels, with zeros as padding. The arrays are as long as {@link panelSizes} says.
 * @param transposed - whether its elements, of f32, are there column by column
 */
export function packWeight(
  weight: Weight,
  data: Weight['data'],
  blockScale?: Uint8Array | undefined,
  transposed = false,
): void {
  const { format, rows } = weight
  if (isBlockFormat(format)) {
    packBlocks({ format, rows, cols: weight.cols }, weight.data as Uint8Array, data as Uint8Array)
    return
  }
  const { cols, group } = codes(weight)
  const indexOf = (plain: number): number =>
    transposed ? (plain % cols) * rows + Math.floor(plain / cols) : plain
  data.fill(0)
  eachCode(rows, cols, group, (plain, packed) => {
    data[packed] = weight.data[indexOf(plain)]!
  })
  if (!blockScale) return
  const scales = blockScaleOf(weight)!
  blockScale.fill(0)
  eachCode(weight.rows, blocks(weight), 1, (plain, packed) => {
    blockScale[packed] = scales[plain]!
  })
}

/** A weight in rows, whatever its layout was. */
export function inRows(weight: Weight): Weight {
  if (weight.layout !== 'panels') return weight
  const { layout: _, ...plain } = weight
  const { format } = plain
  if (isBlockFormat(format))
    return { ...plain, data: unpackBlocks({ ...plain, format }, plain.data as Uint8Array) } as Weight
  const { cols, group } = codes(weight)
  const from = weight.data
  const data = from.slice(0, weight.rows * cols)
  eachCode(weight.rows, cols, group, (plain, packed) => {
    data[plain] = from[packed]!
  })
  const scales = blockScaleOf(weight)
  if (!scales) return { ...plain, data } as Weight
  const blockScale = scales.slice(0, weight.rows * blocks(weight))
  eachCode(weight.rows, blocks(weight), 1, (plain, packed) => {
    blockScale[plain] = scales[packed]!
  })
  return { ...plain, data, blockScale } as Weight
}
