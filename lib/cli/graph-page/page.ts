// page.ts: HTML page of a model: drawings, tables and totals of its graphs, in one file without requests.
import { readFileSync } from 'node:fs'
import { escapeHtml } from '../html.js'
import { constantsOf, type Diagram, diagramOf, type Section } from './diagram.js'
import { drawing } from './drawing.js'
import { kinds } from './kinds.js'
import { type Ids, nodeTable } from './node-table.js'
import { style } from './style.js'

/** What a page shows beside the graphs. */
export interface PageOptions {
  readonly title: string
  /** Names and values of the summary. */
  readonly facts: readonly (readonly [string, string])[]
}

/** A section, and where it is on the page. */
interface View {
  readonly id: string
  readonly section: Section
  /** The box that a body belongs to. */
  readonly owner?: { readonly id: string; readonly text: string }
}

/** A page of graphs, each as a drawing and a table; branches and loop bodies are graphs of their own. */
export function graphPage({ title, facts }: PageOptions, sections: readonly Section[]): string {
  const views: View[] = sections.map((section, i) => ({ id: `g${i}`, section }))
  const parts: string[] = []
  const shownKinds = new Set<string>()
  for (let view = views[0], i = 0; view; view = views[++i]) {
    const diagram = diagramOf(view.section)
    views.push(...bodiesOf(view, diagram))
    parts.push(viewPart(view, diagram))
    for (const { kind } of diagram.boxes) shownKinds.add(kind.name)
  }
  const tabs = sections.map(({ title }, i) => `<a class="tab" href="#g${i}">${escapeHtml(title)}</a>`)
  const script = readFileSync(new URL('client.js', import.meta.url), 'utf8')
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escapeHtml(title)}</title>
<style>${style}</style>
<header>
<h1>${escapeHtml(title)}</h1>
<nav aria-label="graphs">${tabs.join('')}</nav>
<search><input id="search" type="search" placeholder="find: conv 112 (press /)" aria-label="find nodes by operator, name or shape">
<output id="found" for="search"></output></search>
<div class="buttons"><button id="mode" title="drawing or table (t)">Table</button><button id="out" title="zoom out (-)">−</button>
<button id="in" title="zoom in (+)">+</button><button id="fit" title="show all (0)">Fit</button>
<button id="theme" title="light or dark">Dark</button></div>
</header>
<svg width="0" height="0" aria-hidden="true"><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto" markerUnits="userSpaceOnUse"><path d="M0 0L8 4L0 8z"/></marker></svg>
<main>
${parts.join('\n')}
<aside aria-label="details"><section id="selected" aria-live="polite" hidden></section>
<h2>Model</h2>${pairs(facts)}
<h2>Colours</h2><ul class="legend">${legend(shownKinds)}</ul>
<h2>Keys</h2>${pairs(keys)}</aside>
</main>
<noscript>This page needs JavaScript.</noscript>
<script type="module">${script}</script>
</html>
`
}

const keys: readonly (readonly [string, string])[] = [
  ['/', 'find'],
  ['Enter, Shift+Enter', 'next, previous match'],
  ['arrows', 'along the edges, to neighbours'],
  ['+ − 0', 'zoom in, out, show all'],
  ['wheel, Ctrl+wheel', 'move, zoom'],
  ['t', 'drawing or table'],
  ['Esc', 'deselect'],
]

const pairs = (rows: readonly (readonly [string, string])[]): string =>
  `<dl>${rows.map(([name, value]) => `<dt>${escapeHtml(name)}</dt><dd>${escapeHtml(value)}</dd>`).join('')}</dl>`

const bodyId = (view: string, box: number, body: number): string => `${view}b${box}g${body}`

function bodiesOf({ id, section }: View, { boxes }: Diagram): View[] {
  const outer = constantsOf(section)
  return boxes.flatMap((box, i) =>
    box.bodies.map((graph, body): View => {
      const title = `${box.title} ${box.name}: ${graph.name || 'body'}`
      const { facts, times } = section
      return {
        id: bodyId(id, i, body),
        section: { title, graph, facts, outer, ...(times && { times }) },
        owner: { id: `${id}n${i}`, text: title },
      }
    }),
  )
}

function viewPart({ id, owner }: View, diagram: Diagram): string {
  const ids: Ids = {
    box: index => `${id}n${index}`,
    row: index => `${id}r${index}`,
    body: (index, body) => bodyId(id, index, body),
  }
  const path = owner ? `<p class="path"><a href="#${owner.id}">↑ back</a> ${escapeHtml(owner.text)}</p>` : ''
  return `<section class="view" id="${id}" hidden>${path}
${drawing(diagram, ids.box)}
<div class="rows">${nodeTable(diagram, ids)}</div></section>`
}

/** The kinds that the drawings have. */
function legend(shown: ReadonlySet<string>): string {
  return kinds
    .filter(({ name }) => shown.has(name))
    .map(({ name, className }) => `<li><span class="swatch ${className}"></span>${name}</li>`)
    .join('')
}
