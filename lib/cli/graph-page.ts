// graph-page.ts: a graph as one HTML page, nodes from the top to the bottom.
import type { Graph, Node } from '../graph/graph.js'
import type { Fact } from '../graph/shape-inference.js'
import { workOf } from '../graph/statistics.js'
import { describeType } from '../runtime/model/feeds.js'

const escapes: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
const escapeHtml = (text: string): string => text.replace(/[&<>"]/g, character => escapes[character]!)

const style = `body { font: 14px system-ui; margin: 2em } td, th { padding: 2px 10px; text-align: left; vertical-align: top }
tr:target { background: #fe9 } .op { font-weight: bold } .type { color: #666 } a { color: #05a }
.bar { display: inline-block; height: 8px; background: #7b0 }`

/** A table of all nodes; each value links to the node that makes it, bars show the share of the arithmetic. */
export function graphPage(title: string, graph: Graph, facts: ReadonlyMap<string, Fact>): string {
  const makers = new Map(graph.nodes.flatMap((node, i) => node.outputs.map(name => [name, i] as const)))
  const work = graph.nodes.map(node => workOf(node, facts)?.flops ?? 0)
  const most = work.reduce((a, b) => Math.max(a, b), 1)
  const value = (name: string): string => {
    const maker = makers.get(name)
    const text = escapeHtml(name)
    return maker === undefined ? text : `<a href="#n${maker}">${text}</a>`
  }
  const typed = (name: string): string =>
    `${escapeHtml(name)} <span class="type">${escapeHtml(describeType(facts.get(name)?.type))}</span>`
  const row = (node: Node, i: number): string => {
    const bar = `<span class="bar" style="width: ${Math.round((120 * work[i]!) / most)}px"></span>`
    const cells = [
      `<span class="op">${escapeHtml(node.op)}</span>`,
      node.inputs
        .filter(name => name !== '')
        .map(value)
        .join('<br>'),
      node.outputs
        .filter(name => name !== '')
        .map(typed)
        .join('<br>'),
      bar,
    ]
    return `<tr id="n${i}">${cells.map(cell => `<td>${cell}</td>`).join('')}</tr>`
  }
  const ends = (list: Graph['inputs']): string => list.map(({ name }) => typed(name)).join('<br>')
  return `<!doctype html>
<meta charset="utf-8"><title>${escapeHtml(title)}</title><style>${style}</style>
<h1>${escapeHtml(title)}</h1>
<p>Inputs:<br>${ends(graph.inputs)}</p>
<p>Outputs:<br>${graph.outputs.map(({ name }) => value(name)).join('<br>')}</p>
<table><tr><th>operator</th><th>reads</th><th>makes</th><th>arithmetic</th></tr>
${graph.nodes.map(row).join('\n')}
</table>
`
}
