// labelled-box.ts: the lines of text of a box, and its size.
import type { Box } from './diagram.js'
import { columnsOf, shortened } from './labels.js'

/** A line of a box. */
export interface Line {
  readonly style: 'title' | 'name' | 'attributes' | 'constants' | 'reference' | 'type'
  readonly text: string
  /** The box that a reference leads to. */
  readonly to?: number
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
    { style: 'title', text: shortened(titleOf(box), maxColumns / titleScale) },
    ...line('name', box.name, 'end'),
    ...line('attributes', box.attributes.join(' · ')),
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
  const widths = lines.map(({ style, text }) => columnsOf(text) * (style === 'title' ? titleScale : 1))
  const columns = widths.reduce((max, width) => Math.max(max, width), 14)
  return {
    lines,
    width: Math.ceil(columns * columnWidth + 2 * padding.x),
    height: lines.length * lineHeight + 2 * padding.y,
  }
}

function titleOf({ title, bodies, ms }: Box): string {
  const inner = bodies.length > 0 ? ` (${bodies.map(({ nodes }) => `${nodes.length} nodes`).join(', ')})` : ''
  const time = ms === undefined ? '' : `  ${formatMs(ms)}`
  return `${title}${inner}${time}`
}

/** A time with a unit. */
export const formatMs = (ms: number): string =>
  ms < 1 ? `${(1000 * ms).toPrecision(3)} µs` : `${ms.toPrecision(3)} ms`
