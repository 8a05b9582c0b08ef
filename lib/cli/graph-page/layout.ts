// layout.ts: positions of boxes and paths of edges.
import { arrange, gap } from './columns.js'
import type { Diagram, Edge } from './diagram.js'
import { type LabelledBox, labelledBox } from './labelled-box.js'
import { layOutPart, type Point } from './part.js'
import { partition } from './partition.js'

/** A box where it is drawn: `x`, `y` are its upper left corner. */
export interface PlacedBox extends LabelledBox, Point {}

/** An edge, as the points that it passes. */
export interface PlacedEdge extends Edge {
  /** The way to the next column, in straight lines; empty for an edge that stays in its own. */
  readonly turn: readonly Point[]
  /** The rest, from top to bottom. */
  readonly points: readonly Point[]
}

/** A drawing. */
export interface Layout {
  readonly boxes: readonly PlacedBox[]
  readonly edges: readonly PlacedEdge[]
  readonly width: number
  readonly height: number
}

/** Lays out a diagram. */
export function layOut(diagram: Diagram): Layout {
  const { parts, drawn, references } = partition(diagram)
  const far = new Map<number, number[]>()
  for (const { from, to } of references) far.set(to, [...(far.get(to) ?? []), from])
  const boxes = diagram.boxes.map((box, i) => labelledBox(box, far.get(i) ?? []))
  const partOf = new Map(parts.flatMap((part, i) => part.map(box => [box, i] as const)))
  const ending = parts.map((): Edge[] => [])
  for (const edge of drawn) ending[partOf.get(edge.to)!]!.push(edge)
  const laidOut = parts.map((part, i) => layOutPart(part, ending[i]!, boxes))
  const { columns, origins } = arrange(laidOut, partOf, boxes)
  const placed = boxes.map((box, i): PlacedBox => {
    const part = partOf.get(i)!
    return { ...box, ...moved(laidOut[part]!.corners.get(i)!, origins[part]!) }
  })
  const edges = drawn.map((edge): PlacedEdge => {
    const part = partOf.get(edge.to)!
    const [source, target, origin] = [placed[edge.from]!, placed[edge.to]!, origins[part]!]
    const start = { x: source.x + source.width / 2, y: source.y + source.height }
    const end = { x: target.x + target.width / 2, y: target.y }
    const { heads, bends } = laidOut[part]!
    const head = heads.get(edge.from)
    const way = [...(head ? [head] : []), ...(bends.get(edge) ?? [])].map(point => moved(point, origin))
    const before = columns[origins[partOf.get(edge.from)!]!.column]!
    const after = columns[origin.column]!
    if (before === after) return { ...edge, turn: [], points: [start, ...way, end] }
    return {
      ...edge,
      turn: [start, ...turn(start, way[0] ?? end, before.height, after.x)],
      points: [...way, end],
    }
  })
  const last = columns.at(-1)!
  const height = columns.reduce((max, column) => Math.max(max, column.height), 0)
  return { boxes: placed, edges, width: last.x + last.width, height }
}

const moved = ({ x, y }: Point, by: Point): Point => ({ x: x + by.x, y: y + by.y })

/** From the foot of a column to above the head of an edge in the next one, between the two. */
function turn(start: Point, head: Point, foot: number, column: number): Point[] {
  const [y, x, top] = [foot + gap.part, column - gap.column / 2, -gap.part]
  return [
    { x: start.x, y },
    { x, y },
    { x, y: top },
    { x: head.x, y: top },
  ]
}
