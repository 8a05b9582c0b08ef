// packed.ts: the micro-panel layout of a packed weight (native/backend/weight.h), in plain TypeScript.
import type { Weight } from './weight.js'

/** Rows of a panel. */
export const panelRows = 32

type Shape = Pick<Weight, 'dtype' | 'rows' | 'cols'>

/** Elements of `data` and `blockScale` of a packed weight; the second is 0 unless it is nvfp4. */
export function packedSizes({ dtype, rows, cols }: Shape): { data: number; blockScale: number } {
  const padded = Math.ceil(rows / panelRows) * panelRows
  if (dtype === 'nvfp4') return { data: (padded * cols) / 2, blockScale: (padded * cols) / 16 }
  return { data: padded * (dtype === 'bf16' ? cols + (cols % 2) : cols), blockScale: 0 }
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

/** What is packed: codes a row, and how many neighbours of a row stay together. */
const codes = ({ dtype, cols }: Shape): { cols: number; group: number } => ({
  cols: dtype === 'nvfp4' ? cols / 2 : cols,
  group: dtype === 'bf16' ? 2 : 1,
})

/** Writes `weight` in panels; padding stays as it is. The arrays are as long as {@link packedSizes} says. */
export function packWeight(weight: Weight, data: Weight['data'], blockScale?: Uint8Array | undefined): void {
  const { cols, group } = codes(weight)
  data.fill(0)
  eachCode(weight.rows, cols, group, (plain, packed) => {
    data[packed] = weight.data[plain]!
  })
  if (!blockScale) return
  blockScale.fill(0)
  eachCode(weight.rows, weight.cols / 16, 1, (plain, packed) => {
    blockScale[packed] = weight.blockScale![plain]!
  })
}

/** A packed weight in rows again; another weight as it is. */
export function unpackWeight(weight: Weight): Weight {
  if (!weight.packed) return weight
  const { packed: _, ...plain } = weight
  const { cols, group } = codes(weight)
  const from = weight.data
  const data = from.slice(0, weight.rows * cols)
  eachCode(weight.rows, cols, group, (plain, packed) => {
    data[plain] = from[packed]!
  })
  if (!weight.blockScale) return { ...plain, data }
  const scales = weight.blockScale
  const blockScale = scales.slice(0, (weight.rows * weight.cols) / 16)
  eachCode(weight.rows, weight.cols / 16, 1, (plain, packed) => {
    blockScale[plain] = scales[packed]!
  })
  return { ...plain, data, blockScale }
}
