// part.ts: layout of a part of a diagram by dagre.
import { graphlib, layout as runDagre } from '@dagrejs/dagre'
import type { Edge } from './diagram.js'
import type { LabelledBox } from './labelled-box.js'

export interface Point {
  readonly x: number
  readonly y: number
}

/** A part at the origin. */
export interface Part {
  readonly width: number
  readonly height: number
  /** Upper left corners of its boxes. */
  readonly corners: ReadonlyMap<number, Point>
  /** Where edges from boxes of the part above come in, by the box; without those of too many boxes. */
  readonly heads: ReadonlyMap<number, Point>
  /** Bends of the edges that span several ranks. */
  readonly bends: ReadonlyMap<Edge, readonly Point[]>
}

/** Pixels between boxes side by side, and between ranks. */
export const gap = { x: 22, y: 30 }
/** Boxes up to which a part gets the ranks with the shortest edges. */
const fewBoxes = 120
/** Heads up to which edges from above are led around boxes, and pairs of a head and a box up to which heads are on top. */
const [fewHeads, fewPairs] = [8, 60]

/** Lays out boxes and the edges that end at them. */
export function layOutPart(
  part: readonly number[],
  ending: readonly Edge[],
  boxes: readonly LabelledBox[],
): Part {
  const members = new Set(part)
  const above = new Set(ending.map(({ from }) => from).filter(from => !members.has(from)))
  const heads = above.size <= fewHeads ? above : new Set<number>()
  const edges = ending.filter(({ from }) => members.has(from) || heads.has(from))
  const key = (box: number): string => (members.has(box) ? `${box}` : `head ${box}`)
  const graph = new graphlib.Graph()
  graph.setGraph({
    nodesep: gap.x,
    edgesep: gap.x / 2,
    ranksep: gap.y,
    ranker: part.length <= fewBoxes ? 'network-simplex' : 'longest-path',
  })
  for (const box of part) {
    const { width, height } = boxes[box]!
    graph.setNode(key(box), { width, height })
  }
  for (const head of heads) graph.setNode(key(head), { width: 1, height: 1 })
  const targets = new Set(edges.map(({ to }) => to))
  const tops = part.filter(box => !targets.has(box))
  if (tops.length * heads.size <= fewPairs)
    for (const head of heads) for (const top of tops) graph.setEdge(key(head), key(top), { weight: 0 })
  for (const { from, to } of edges) graph.setEdge(key(from), key(to), {})
  runDagre(graph)
  const { width = 0, height = 0 } = graph.graph()
  const corner = (box: number): Point => {
    const { x, y, width, height } = graph.node(key(box))
    return { x: x - width / 2, y: y - height / 2 }
  }
  return {
    width,
    height,
    corners: new Map(part.map(box => [box, corner(box)])),
    heads: new Map([...heads].map(head => [head, corner(head)])),
    bends: new Map(edges.map(edge => [edge, straightened(graph.edge(key(edge.from), key(edge.to)).points)])),
  }
}

/** The bends of an edge: what lies between its ends, without points on a straight line. A short edge has none. */
function straightened(points: readonly Point[]): Point[] {
  if (points.length <= 3) return []
  return points
    .slice(1, -1)
    .filter(({ x }, i, all) => i === 0 || i === all.length - 1 || x !== all[i - 1]!.x || x !== all[i + 1]!.x)
}
