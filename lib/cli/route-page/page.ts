// page.ts: HTML page of a drive: frames with what the model saw, speed, steering, events, in one file without requests.
import { readFileSync } from 'node:fs'
import { escapeHtml, scriptJson } from '../html.js'
import { plotLibrary } from '../plots.js'
import type { Drive } from './drive.js'
import type { Pictures } from './frames.js'
import { style } from './style.js'

/** What a page shows beside the drive. */
export interface RoutePageOptions {
  readonly title: string
  /** Names and values of the summary. */
  readonly facts: readonly (readonly [string, string])[]
}

/** Types of events that are listed; more are in damaged logs only. */
const maxTypes = 150

/** A page of a drive. */
export function routePage({ title, facts }: RoutePageOptions, drive: Drive, pictures: Pictures): string {
  const plots = plotLibrary()
  const script = readFileSync(new URL('client.js', import.meta.url), 'utf8')
  const hasCar = drive.car.times.length > 0
  const hasFrames = pictures.frames.length > 0
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escapeHtml(title)}</title>
<style>${plots.style}
${style}</style>
<header><h1>${escapeHtml(title)}</h1>
<button id="theme" title="light or dark">Dark</button></header>
<main>
<div class="drive">
${hasFrames ? figure(pictures) : note(`No frames: ${pictures.why ?? 'none could be read'}.`)}
${hasCar || hasFrames ? controls : ''}
${hasCar ? plotParts : note('No plots: the log has no carState.')}
</div>
<aside aria-label="details"><h2>Segment</h2>${pairs(facts)}
<h2>Colours</h2><ul class="legend">${legend}</ul>
<h2>Keys</h2>${pairs(keys)}
<h2>Events</h2>${eventList(drive)}</aside>
</main>
<noscript>This page needs JavaScript.</noscript>
<script type="application/json" id="data">${scriptJson(pageData(drive, pictures))}</script>
<script>${plots.script}</script>
<script type="module">${script}</script>
</html>
`
}

export const note = (text: string): string => `<p class="note">${escapeHtml(text)}</p>`

const figure = ({ size: { width, height } }: Pictures): string => `<figure>
<div class="frame" style="aspect-ratio: ${width} / ${height}"><img id="frame" alt="the road">
<svg id="overlay" viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img" aria-label="plan, lanes and leads"></svg></div>
<figcaption id="caption"></figcaption></figure>`

const controls = `<div class="controls"><button id="play" title="play or pause (space)">Play</button>
<label>speed <select id="rate"><option value="1">1×</option><option value="2">2×</option><option value="5">5×</option><option value="10">10×</option></select></label>
<input id="time" type="range" min="0" step="0.05" value="0" aria-label="time in seconds"></div>
<output id="now" for="time"></output>`

const plotParts = `<section><h2>Speed, m/s (right: km/h)</h2><div class="plot" id="speed" role="img" aria-label="speed over time"></div></section>
<section><h2>Steering angle, degrees (left is positive)</h2><div class="plot" id="angle" role="img" aria-label="steering angle over time"></div></section>`

const keys: readonly (readonly [string, string])[] = [
  ['← →', 'previous, next frame'],
  ['Home, End', 'start, end'],
  ['space', 'play, pause'],
]

const legend = [
  ['plan', 'plan of the model'],
  ['lane', 'lane line; the surer, the clearer'],
  ['edge', 'edge of the road'],
  ['lead', 'car ahead'],
  ['engaged', 'openpilot drives'],
  ['pressed', 'driver turns the wheel'],
]
  .map(([name, text]) => `<li><span class="swatch ${name}"></span>${text}</li>`)
  .join('')

export const pairs = (rows: readonly (readonly [string, string])[]): string =>
  `<dl>${rows.map(([name, value]) => `<dt>${escapeHtml(name)}</dt><dd>${escapeHtml(value)}</dd>`).join('')}</dl>`

function eventList({ counts }: Drive): string {
  const sorted = [...counts].sort(([, a], [, b]) => b - a)
  const most = sorted[0]?.[1] ?? 1
  if (sorted.length === 0) return note('None.')
  const rows = sorted.slice(0, maxTypes).map(([name, count]) => {
    const bar = `<span class="bar" style="width: ${((100 * count) / most).toFixed(2)}%"></span>`
    return `<tr><th scope="row">${escapeHtml(name)}${bar}</th><td>${count}</td></tr>`
  })
  const more = sorted.length - rows.length
  return `<table id="events"><thead><tr><th scope="col">type</th><th scope="col">events</th></tr></thead>
<tbody>${rows.join('')}</tbody></table>${more > 0 ? note(`And ${more} more types.`) : ''}`
}

/** What the script of the page draws; times are seconds since the start. */
function pageData(drive: Drive, { frames }: Pictures) {
  const { car, engaged } = drive
  const times = car.times
  const engagedTimes = engaged?.samples.times ?? []
  const start = [times[0], frames[0]?.time, engagedTimes[0]].reduce<number>(
    (least, time) => Math.min(least, time ?? least),
    Number.POSITIVE_INFINITY,
  )
  const since = (time: number): number => Math.round(1000 * (time - start)) / 1000
  const spans = (all: readonly (readonly [number, number])[]) => all.map(span => span.map(since))
  return {
    times: times.map(since),
    speed: car.values('speed').map(rounded),
    angle: car.values('angle').map(rounded),
    engaged: spans(engaged?.samples.spans('enabled') ?? []),
    pressed: spans(car.spans('pressed')),
    frames: frames.map(({ time, jpeg, overlay }) => ({
      time: since(time),
      src: `data:image/jpeg;base64,${Buffer.from(jpeg).toString('base64')}`,
      overlay,
    })),
  }
}

const rounded = (value: number | null): number | null => value && Math.round(1000 * value) / 1000
