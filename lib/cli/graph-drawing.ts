// graph-drawing.ts: layered SVG drawing of a graph, from top to bottom.
import { readsOf } from '../graph/edit.js'
import type { Graph } from '../graph/graph.js'
import { escapeHtml } from './html.js'

const box = { width: 150, height: 24 }
const gap = { x: 20, y: 26 }

/** An SVG; each box links to what `id` names for its node. */
export function drawGraph(graph: Graph, id: (node: number) => string): string {
  const positions = positionsOf(graph)
  const makers = new Map(graph.nodes.flatMap((node, i) => node.outputs.map(name => [name, i] as const)))
  const edges = graph.nodes.flatMap((node, to) =>
    readsOf(node).flatMap(name => {
      const from = makers.get(name)
      return from === undefined ? [] : [edge(positions[from]!, positions[to]!)]
    }),
  )
  const boxes = graph.nodes.map(({ op, domain, name, outputs }, i) => {
    const { x, y } = positions[i]!
    const kind = domain === '' ? '' : ' class="own"'
    const label = `<text x="${x + box.width / 2}" y="${y + 16}" text-anchor="middle">${escapeHtml(op)}</text>`
    const rect = `<rect${kind} x="${x}" y="${y}" width="${box.width}" height="${box.height}" rx="5"/>`
    const title = `<title>${escapeHtml(name || outputs[0] || op)}</title>`
    return `<a href="#${id(i)}">${title}${rect}${label}</a>`
  })
  const right = positions.reduce((max, { x }) => Math.max(max, x), 0) + box.width + gap.x
  const bottom = positions.reduce((max, { y }) => Math.max(max, y), 0) + box.height + gap.y
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${right}" height="${bottom}">${edges.join('')}${boxes.join('')}</svg>`
}

interface Position {
  readonly x: number
  readonly y: number
}

/** The upper left corner of each node. */
function positionsOf({ nodes }: Graph): Position[] {
  const depths = new Map<string, number>()
  const widths: number[] = []
  return nodes.map(node => {
    const depth = readsOf(node).reduce((max, name) => Math.max(max, (depths.get(name) ?? -1) + 1), 0)
    for (const name of node.outputs) depths.set(name, depth)
    const column = widths[depth] ?? 0
    widths[depth] = column + 1
    return { x: gap.x + column * (box.width + gap.x), y: gap.y + depth * (box.height + gap.y) }
  })
}

function edge(from: Position, to: Position): string {
  const [x, y, u, v] = [from.x + box.width / 2, from.y + box.height, to.x + box.width / 2, to.y]
  return `<path d="M${x} ${y} C${x} ${y + gap.y} ${u} ${v - gap.y} ${u} ${v}"/>`
}
