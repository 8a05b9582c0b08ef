// columns.ts: arrangement of parts in columns that fill a page.
import type { LabelledBox } from './labelled-box.js'
import type { Part, Point } from './part.js'

/** Pixels between parts of a column, and between columns. */
export const gap = { part: 12, column: 60 }
/** Width of a page for its height, and the height in pixels up to which one column will do. */
const [aspect, oneColumn] = [1.7, 1200]

/** Where a part is. */
export interface Origin extends Point {
  readonly column: number
}

export interface Column {
  readonly x: number
  readonly width: number
  readonly height: number
}

/** Stacks parts in columns, each below the boxes that lead to it. */
export function arrange(
  parts: readonly Part[],
  partOf: ReadonlyMap<number, number>,
  boxes: readonly LabelledBox[],
): { columns: Column[]; origins: Origin[] } {
  const limit = columnHeight(parts)
  const centre = (box: number): number => parts[partOf.get(box)!]!.corners.get(box)!.x + boxes[box]!.width / 2
  const origins: Origin[] = []
  let [column, y] = [0, 0]
  for (const [i, { height, heads }] of parts.entries()) {
    if (y > 0 && y + height > limit) {
      column++
      y = 0
    }
    const above = y > 0 ? origins[i - 1]!.x : undefined
    const shift = mean([...heads].map(([from, head]) => centre(from) - head.x))
    origins.push({ column, x: above === undefined ? 0 : above + shift, y })
    y += height + gap.part
  }
  const columns: Column[] = []
  let left = 0
  for (let i = 0; i <= column; i++) {
    const members = origins.flatMap((origin, part) => (origin.column === i ? [part] : []))
    const least = Math.min(...members.map(part => origins[part]!.x))
    const most = Math.max(...members.map(part => origins[part]!.x + parts[part]!.width))
    const last = members.at(-1)!
    columns.push({ x: left, width: most - least, height: origins[last]!.y + parts[last]!.height })
    for (const part of members) origins[part] = { ...origins[part]!, x: origins[part]!.x + left - least }
    left += most - least + gap.column
  }
  return { columns, origins }
}

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / Math.max(values.length, 1)

/** The height at which a new column begins: that of a page as wide as screens are. */
function columnHeight(parts: readonly Part[]): number {
  const sum = parts.reduce((sum, { height }) => sum + height + gap.part, 0)
  const widest = parts.reduce((max, { width }) => Math.max(max, width), 0) + gap.column
  const tallest = parts.reduce((max, { height }) => Math.max(max, height), oneColumn)
  return Math.max(tallest, Math.sqrt((sum * widest) / aspect))
}
