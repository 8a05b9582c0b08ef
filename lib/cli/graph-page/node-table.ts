// node-table.ts: the boxes of a diagram as a table, whose rows are also what the page shows of a selected box.
import { formatCount } from '../counts.js'
import { escapeHtml } from '../html.js'
import type { Box, Diagram, Port } from './diagram.js'
import { formatMs } from './labelled-box.js'

/** Readers of a value that are named. */
const shownReaders = 12

/** Ids of the elements of a view. */
export interface Ids {
  box(index: number): string
  row(index: number): string
  /** The view of a branch or loop body. */
  body(index: number, body: number): string
}

/** One row per box, with links to its neighbours. */
export function nodeTable({ boxes }: Diagram, ids: Ids): string {
  const most = (of: (box: Box) => number | undefined): number =>
    boxes.reduce((max, box) => Math.max(max, of(box) ?? 0), 0)
  const [mostFlops, mostMs] = [most(box => box.flops), most(box => box.ms)]
  const link = (box: number): string =>
    `<a href="#${ids.box(box)}">${escapeHtml(boxes[box]!.name || boxes[box]!.title)}</a>`
  const row = (box: Box, i: number): string => {
    const bodies = box.bodies.map(
      ({ name, nodes }, body) =>
        `<a href="#${ids.body(i, body)}">${escapeHtml(name || 'body')}: ${nodes.length} nodes</a>`,
    )
    const cells = [
      `<a href="#${ids.box(i)}">${escapeHtml(box.domain ? `${box.domain}::${box.title}` : box.title)}</a>`,
      escapeHtml(box.name),
      [...box.attributes.map(escapeHtml), ...bodies].join('<br>'),
      box.reads.map(port => portText(port, link)).join(''),
      box.makes.map(port => portText(port, link)).join(''),
      barText(box.flops, mostFlops, value => formatCount(value)),
      ...(mostMs > 0 ? [barText(box.ms, mostMs, formatMs)] : []),
    ]
    return `<tr id="${ids.row(i)}">${cells.map(cell => `<td>${cell}</td>`).join('')}</tr>`
  }
  const head = ['operator', 'name', 'attributes', 'reads', 'makes', 'FLOP', ...(mostMs > 0 ? ['time'] : [])]
  return `<table class="nodes"><thead><tr>${head.map(name => `<th scope="col">${name}</th>`).join('')}</tr></thead>
<tbody>${boxes.map(row).join('\n')}</tbody></table>`
}

function portText({ name, type, boxes, constant }: Port, link: (box: number) => string): string {
  const links = boxes.slice(0, shownReaders).map(link)
  const more = boxes.length > shownReaders ? ` and ${boxes.length - shownReaders} more` : ''
  const ends = links.length > 0 ? `<span class="ends">${links.join(', ')}${more}</span>` : ''
  const value = constant === undefined || constant === type ? '' : ` = ${escapeHtml(constant)}`
  return `<div>${escapeHtml(name)} <span class="type">${escapeHtml(type)}${value}</span>${ends}</div>`
}

function barText(value: number | undefined, most: number, format: (value: number) => string): string {
  if (value === undefined) return ''
  const text = `<span class="number">${format(value)}</span>`
  return value > 0
    ? `${text}<span class="bar" style="width:${((100 * value) / most).toFixed(1)}%"></span>`
    : text
}
