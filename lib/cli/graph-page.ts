// graph-page.ts: HTML page with the drawing of a graph and a table of its nodes.
import type { Graph, Node } from '../graph/graph.js'
import type { Fact } from '../graph/shape-inference.js'
import { workOf } from '../graph/statistics.js'
import { describeType } from '../model/feeds.js'
import { drawGraph } from './graph-drawing.js'
import { escapeHtml } from './html.js'

/** A graph and what is known of its values. */
export interface Section {
  readonly title: string
  readonly graph: Graph
  readonly facts: ReadonlyMap<string, Fact>
}

const style = `body { font: 14px system-ui; margin: 2em } td, th { padding: 2px 10px; text-align: left; vertical-align: top }
tr:target { background: #fe9 } .op { font-weight: bold } .type { color: #666 } a { color: #05a }
.bar { display: inline-block; height: 8px; background: #7b0 } .drawing { overflow: auto; max-height: 80vh; border: 1px solid #ccc }
svg text { font: 12px system-ui } svg path { fill: none; stroke: #999 } svg rect { fill: #eef; stroke: #88a } svg .own { fill: #efd }`

/** A page of graphs, each as a drawing and a table. */
export function graphPage(
  title: string,
  fusions: Readonly<Record<string, number>>,
  sections: readonly Section[],
): string {
  const made = Object.entries(fusions).map(([name, count]) => `${escapeHtml(name)}: ${count}`)
  return `<!doctype html>
<meta charset="utf-8"><title>${escapeHtml(title)}</title><style>${style}</style>
<h1>${escapeHtml(title)}</h1>
<p>Fusions: ${made.join(', ') || 'none'}</p>
${sections.map(sectionOf).join('\n')}
`
}

/** Each value links to the node that makes it, bars show the share of the arithmetic. */
function sectionOf({ title, graph, facts }: Section, section: number): string {
  const id = (node: number): string => `s${section}n${node}`
  const makers = new Map(graph.nodes.flatMap((node, i) => node.outputs.map(name => [name, i] as const)))
  const work = graph.nodes.map(node => workOf(node, facts)?.flops ?? 0)
  const max = work.reduce((a, b) => Math.max(a, b), 1)
  const value = (name: string): string => {
    const maker = makers.get(name)
    const text = escapeHtml(name)
    return maker === undefined ? text : `<a href="#${id(maker)}">${text}</a>`
  }
  const typed = (name: string): string =>
    `${escapeHtml(name)} <span class="type">${escapeHtml(describeType(facts.get(name)?.type))}</span>`
  const list = (names: readonly string[], show: (name: string) => string): string =>
    names
      .filter(name => name !== '')
      .map(show)
      .join('<br>')
  const row = (node: Node, i: number): string => {
    const bar = `<span class="bar" style="width: ${Math.round((120 * work[i]!) / max)}px"></span>`
    const op = `<span class="op">${escapeHtml(node.op)}</span>`
    const cells = [op, list(node.inputs, value), list(node.outputs, typed), bar]
    return `<tr id="${id(i)}">${cells.map(cell => `<td>${cell}</td>`).join('')}</tr>`
  }
  const names = (infos: Graph['inputs']): string[] => infos.map(({ name }) => name)
  return `<h2>${escapeHtml(title)}: ${graph.nodes.length} nodes</h2>
<p>Inputs:<br>${list(names(graph.inputs), typed)}</p>
<p>Outputs:<br>${list(names(graph.outputs), value)}</p>
<div class="drawing">${drawGraph(graph, id)}</div>
<table><tr><th>operator</th><th>reads</th><th>makes</th><th>arithmetic</th></tr>
${graph.nodes.map(row).join('\n')}
</table>`
}
