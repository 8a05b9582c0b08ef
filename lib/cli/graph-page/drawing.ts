// drawing.ts: SVG of a layout.
import { escapeHtml } from '../html.js'
import type { Box, Diagram } from './diagram.js'
import { lineHeight, padding } from './labelled-box.js'
import { layOut, type PlacedBox, type PlacedEdge } from './layout.js'
import type { Point } from './part.js'

/** Pixels around the drawing. */
const margin = 24
/** Height of the bar that shows the share of the slowest box. */
const barHeight = 4

/** An SVG element; `id` names the box of an index. */
export function drawing(diagram: Diagram, id: (box: number) => string): string {
  const { boxes, edges, width, height } = layOut(diagram)
  const slowest = diagram.boxes.reduce((max, { ms = 0 }) => Math.max(max, ms), 0)
  const drawn = boxes.map((placed, i) => drawBox(diagram.boxes[i]!, placed, id, i, slowest))
  const [w, h] = [width + 2 * margin, height + 2 * margin].map(Math.ceil)
  return `<svg class="drawing" data-width="${w}" data-height="${h}" tabindex="0" role="group" aria-label="graph">
<g class="canvas"><g transform="translate(${margin},${margin})">
${edges.map(drawEdge).join('\n')}
${drawn.join('\n')}
</g></g></svg>`
}

function drawBox(
  box: Box,
  placed: PlacedBox,
  id: (box: number) => string,
  i: number,
  slowest: number,
): string {
  const { x, y, width, height, lines } = placed
  const texts = lines.map(({ style, text, to, time }, row) => {
    const beside = time === undefined ? '' : `<tspan class="ms" dx="8">${time}</tspan>`
    const y = padding.y + (row + 0.8) * lineHeight
    const element = `<text class="${style}" x="${padding.x}" y="${y}">${escapeHtml(text)}${beside}</text>`
    return to === undefined ? element : `<a href="#${id(to)}" tabindex="-1">${element}</a>`
  })
  const share = slowest > 0 ? (box.ms ?? 0) / slowest : 0
  const bar =
    share > 0
      ? `<rect class="time" y="${height - barHeight}" width="${round(share * width)}" height="${barHeight}"/>`
      : ''
  const types = [...new Set(box.makes.map(({ type }) => type))]
  const title = [box.title, box.name, ...box.attributes, ...types].map(escapeHtml).join('\n')
  const shape = `<rect class="body" width="${width}" height="${height}" rx="6"/>`
  const position = `transform="translate(${round(x)},${round(y)})"`
  return `<g class="box ${box.kind.className}" id="${id(i)}" tabindex="-1" role="button" ${position}>
<title>${title}</title>${shape}${bar}${texts.join('')}</g>`
}

const round = (value: number): number => Math.round(value * 10) / 10

function drawEdge({ from, to, turn, points }: PlacedEdge): string {
  const path = turn.length > 0 ? `${straight(turn)}L${curved(points).slice(1)}` : curved(points)
  const kind = turn.length > 0 ? 'edge turn' : 'edge'
  return `<path class="${kind}" data-from="${from}" data-to="${to}" d="${path}"/>`
}

const at = ({ x, y }: Point): string => `${round(x)} ${round(y)}`

const straight = (points: readonly Point[]): string => `M${points.map(at).join('L')}`

/** A curve that is vertical at each point. */
function curved([start, ...rest]: readonly Point[]): string {
  let last = start!
  const pieces = rest.map(point => {
    const middle = (last.y + point.y) / 2
    const piece =
      last.x === point.x
        ? `L${at(point)}`
        : `C${at({ x: last.x, y: middle })} ${at({ x: point.x, y: middle })} ${at(point)}`
    last = point
    return piece
  })
  return `M${at(start!)}${pieces.join('')}`
}
