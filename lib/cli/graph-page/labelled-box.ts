// labelled-box.ts: the lines of text of a box, and its size.
import type { Box } from './diagram.js'
import { columnsOf, shortened } from './labels.js'

/** A line of a box. */
export interface Line {
  readonly style: 'title' | 'name' | 'attributes' | 'constants' | 'reference' | 'type'
  readonly text: string
  /** The box that a reference leads to. */
  readonly to?: number
  /** The time beside a title. */
  readonly time?: string
}

/** A box as it is drawn. */
export interface LabelledBox {
  readonly lines: readonly Line[]
  readonly width: number
  readonly height: number
}

/** Pixels of a line, and of a column of text: an average letter of the font. */
export const lineHeight = 15
const columnWidth = 6.4
/** Pixels between the border of a box and its text. */
export const padding = { x: 9, y: 6 }
/** The longest line, in columns, and the width of a title beside that of other text. */
const [maxColumns, titleScale] = [38, 1.25]
/** Outputs and references that are named. */
const shownPorts = 3

/** The lines of a box; `references` are the boxes from which undrawn edges come. */
export function labelledBox(box: Box, references: readonly number[]): LabelledBox {
  const line = (style: Line['style'], text: string, keep?: 'end'): Line[] =>
    text === '' ? [] : [{ style, text: shortened(text, maxColumns, keep) }]
  const constants = box.reads.flatMap(({ constant }) => (constant === undefined ? [] : [constant]))
  const far = box.reads.flatMap(({ name, boxes: [from] }) =>
    from !== undefined && references.includes(from) ? [{ name, from }] : [],
  )
  const outer = box.reads.filter(({ boxes, constant }) => boxes.length === 0 && constant === undefined)
  const lines: Line[] = [
    {
      style: 'title',
      text: shortened(titleOf(box), maxColumns / titleScale),
      ...(box.ms !== undefined && { time: formatMs(box.ms) }),
    },
    ...line('name', box.name, 'end'),
    ...packed(box.attributes).flatMap(text => line('attributes', text)),
    ...line('constants', constants.length > 0 ? `with ${constants.join(', ')}` : ''),
    ...far.slice(0, shownPorts).map(
      ({ name, from }): Line => ({
        style: 'reference',
        text: `↑ ${shortened(name, maxColumns - 2, 'end')}`,
        to: from,
      }),
    ),
    ...outer.slice(0, shownPorts).flatMap(({ name }) => line('name', `from outside: ${name}`)),
    ...(box.kind.name === 'input' ? [] : box.makes.slice(0, shownPorts)).flatMap(({ type }) =>
      line('type', `→ ${type}`),
    ),
  ]
  const widths = lines.map(
    ({ style, text, time = '' }) =>
      columnsOf(text) * (style === 'title' ? titleScale : 1) + columnsOf(time && `  ${time}`),
  )
  const columns = widths.reduce((max, width) => Math.max(max, width), 14)
  return {
    lines,
    width: Math.ceil(columns * columnWidth + 2 * padding.x),
    height: lines.length * lineHeight + 2 * padding.y,
  }
}

/** Items on as few lines as hold them, two at most. */
function packed(items: readonly string[]): string[] {
  const [first = '', ...rest] = items
  const lines = [first]
  for (const item of rest) {
    const joined = `${lines.at(-1)} · ${item}`
    if (lines.length === 2 || columnsOf(joined) <= maxColumns) lines[lines.length - 1] = joined
    else lines.push(item)
  }
  return lines
}

function titleOf({ title, bodies }: Box): string {
  return bodies.length > 0 ? `${title} (${bodies.map(({ nodes }) => nodes.length).join(' + ')} nodes)` : title
}

/** A time with a unit. */
export const formatMs = (ms: number): string =>
  ms < 1 ? `${(1000 * ms).toPrecision(3)} µs` : `${ms.toPrecision(3)} ms`
