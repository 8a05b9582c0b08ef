// layout.ts: positions of boxes and paths of edges. dagre lays out each part, columns of parts fill the page.
import { graphlib, layout as runDagre } from '@dagrejs/dagre'
import type { Diagram, Edge } from './diagram.js'
import { type LabelledBox, labelledBox } from './labelled-box.js'
import { partition } from './partition.js'

export interface Point {
  readonly x: number
  readonly y: number
}

/** A box at its place: `x`, `y` are its upper left corner. */
export interface PlacedBox extends LabelledBox, Point {}

/** An edge, as the points that it passes. */
export interface PlacedEdge extends Edge {
  readonly points: readonly Point[]
  /** Whether it leads to the next column, by straight lines. */
  readonly isTurn: boolean
}

/** A drawing. */
export interface Layout {
  readonly boxes: readonly PlacedBox[]
  readonly edges: readonly PlacedEdge[]
  readonly width: number
  readonly height: number
}

/** Pixels between boxes side by side, between ranks, and between columns. */
const gap = { x: 22, y: 30, column: 60 }
/** Width of a page for its height, and the height in pixels up to which one column will do. */
const [aspect, oneColumn] = [1.7, 1500]
/** Boxes up to which a part gets the ranks with the shortest edges. */
const fewBoxes = 120

/** A part at the origin. */
interface Part {
  readonly width: number
  readonly height: number
  readonly corners: ReadonlyMap<number, Point>
  /** Bends of the edges that span several ranks. */
  readonly bends: ReadonlyMap<Edge, readonly Point[]>
}

/** Lays out a diagram. */
export function layOut(diagram: Diagram): Layout {
  const { parts, drawn, references } = partition(diagram)
  const far = new Map<number, number[]>()
  for (const { from, to } of references) far.set(to, [...(far.get(to) ?? []), from])
  const boxes = diagram.boxes.map((box, i) => labelledBox(box, far.get(i) ?? []))
  const partOf = new Map(parts.flatMap((part, i) => part.map(box => [box, i] as const)))
  const inner = parts.map((): Edge[] => [])
  const entering = parts.map((): Edge[] => [])
  for (const edge of drawn) {
    const part = partOf.get(edge.to)!
    const edges = partOf.get(edge.from) === part ? inner : entering
    edges[part]!.push(edge)
  }
  const laidOut = parts.map((part, i) => layOutPart(part, inner[i]!, boxes))
  const { columns, origins } = arrange(laidOut, entering, partOf, boxes)
  const placed = boxes.map((box, i): PlacedBox => {
    const part = partOf.get(i)!
    return { ...box, ...moved(laidOut[part]!.corners.get(i)!, origins[part]!) }
  })
  const edges = drawn.map((edge): PlacedEdge => {
    const part = partOf.get(edge.to)!
    const [source, target] = [placed[edge.from]!, placed[edge.to]!]
    const start = { x: source.x + source.width / 2, y: source.y + source.height }
    const end = { x: target.x + target.width / 2, y: target.y }
    const before = columns[origins[partOf.get(edge.from)!]!.column]!
    const after = columns[origins[part]!.column]!
    const isTurn = before !== after
    const bends = isTurn
      ? turn(start, end, before.height, after.x)
      : (laidOut[part]!.bends.get(edge) ?? []).map(point => moved(point, origins[part]!))
    return { ...edge, isTurn, points: [start, ...bends, end] }
  })
  const last = columns.at(-1)!
  const height = columns.reduce((max, column) => Math.max(max, column.height), 0)
  return { boxes: placed, edges, width: last.x + last.width, height }
}

const moved = ({ x, y }: Point, by: Point): Point => ({ x: x + by.x, y: y + by.y })

/** From the foot of a column to the head of the next, between the two. */
function turn(start: Point, end: Point, foot: number, column: number): Point[] {
  const [y, x, top] = [foot + gap.y / 2, column - gap.column / 2, -gap.y / 2]
  return [
    { x: start.x, y },
    { x, y },
    { x, y: top },
    { x: end.x, y: top },
  ]
}

function layOutPart(part: readonly number[], edges: readonly Edge[], boxes: readonly LabelledBox[]): Part {
  const graph = new graphlib.Graph()
  graph.setGraph({
    nodesep: gap.x,
    edgesep: gap.x / 2,
    ranksep: gap.y,
    ranker: part.length <= fewBoxes ? 'network-simplex' : 'longest-path',
  })
  for (const box of part) {
    const { width, height } = boxes[box]!
    graph.setNode(String(box), { width, height })
  }
  for (const { from, to } of edges) graph.setEdge(String(from), String(to), {})
  runDagre(graph)
  const { width = 0, height = 0 } = graph.graph()
  const corners = new Map(
    part.map(box => {
      const { x, y, width, height } = graph.node(String(box))
      return [box, { x: x - width / 2, y: y - height / 2 }]
    }),
  )
  const bends = new Map(
    edges.map(edge => [edge, straightened(graph.edge(String(edge.from), String(edge.to)).points)]),
  )
  return { width, height, corners, bends }
}

/** The bends of an edge: what lies between its ends, without points on a straight line. A short edge has none. */
function straightened(points: readonly Point[]): Point[] {
  if (points.length <= 3) return []
  return points
    .slice(1, -1)
    .filter(({ x }, i, all) => i === 0 || i === all.length - 1 || x !== all[i - 1]!.x || x !== all[i + 1]!.x)
}

/** Where a part is. */
interface Origin extends Point {
  readonly column: number
}

interface Column {
  readonly x: number
  readonly width: number
  readonly height: number
}

/** Stacks parts in columns, each below the boxes that lead to it. */
function arrange(
  parts: readonly Part[],
  entering: readonly (readonly Edge[])[],
  partOf: ReadonlyMap<number, number>,
  boxes: readonly LabelledBox[],
): { columns: Column[]; origins: Origin[] } {
  const limit = columnHeight(parts)
  const centre = (box: number): number => parts[partOf.get(box)!]!.corners.get(box)!.x + boxes[box]!.width / 2
  const origins: Origin[] = []
  let [column, y] = [0, 0]
  for (const [i, { height }] of parts.entries()) {
    if (y > 0 && y + height > limit) {
      column++
      y = 0
    }
    const above = y > 0 ? origins[i - 1]!.x : undefined
    const shift = mean(entering[i]!.map(({ from, to }) => centre(from) - centre(to)))
    origins.push({ column, x: above === undefined ? 0 : above + shift, y })
    y += height + gap.y
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
  const sum = parts.reduce((sum, { height }) => sum + height + gap.y, 0)
  const widest = parts.reduce((max, { width }) => Math.max(max, width), 0) + gap.column
  const tallest = parts.reduce((max, { height }) => Math.max(max, height), oneColumn)
  return Math.max(tallest, Math.sqrt((sum * widest) / aspect))
}
