// page.ts: HTML page of a placement: layers, times of stages, memory, what would help, in one file without requests.
import { readFileSync } from 'node:fs'
import { gigabytes } from '../../cluster/placement/constraints.js'
import { heldBytesOf, layerName, layerRange, type ModelCosts } from '../../cluster/placement/costs.js'
import { type Fleet, freeBytes } from '../../cluster/placement/fleet.js'
import type { Placement, Stage } from '../../cluster/placement/place.js'
import { milliseconds, type PlacementReport } from '../../cluster/placement/report.js'
import { escapeHtml, scriptJson } from '../html.js'
import { note, pairs } from '../route-page/page.js'
import { stageColours, style } from './style.js'

/** Devices whose memory is shown beside those of the stages, and reasons that are listed. */
const [maxOthers, maxReasons] = [12, 50]

/** A page of a placement. `facts`: names and values of the summary. */
export function placementPage(
  facts: readonly (readonly [string, string])[],
  costs: ModelCosts,
  fleet: Fleet,
  { placement, helps, unused }: PlacementReport,
): string {
  const title = `Placement: ${costs.name}`
  const { stages } = placement
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escapeHtml(title)}</title>
<style>${style}</style>
<header><h1>${escapeHtml(title)}</h1>
<button id="theme" title="light or dark">Dark</button></header>
<main>
<h2>Summary</h2>${pairs(facts)}
<h2>Layers</h2><div class="strip" role="group" aria-label="layers">${strip(costs, stages)}</div>
<ul class="legend names">${stages.map((stage, i) => `<li class="${colour(i)}"><span class="swatch stage"></span>${escapeHtml(nameOf(stage))}</li>`).join('')}</ul>
<output id="now" aria-live="polite"></output><p class="keys">← → Home End: layers</p>
<h2>Time of a step</h2><p>Hatched: what a stage waits for on its link. Outlined: the bottleneck.</p>
<div class="timeline" aria-hidden="true">${timeline(placement)}</div>
${stageTable(costs, placement)}
<h2>Memory</h2><p>What each device needs, of what it has for models.</p>
<div class="memory">${memory(placement, fleet)}</div>
<h2>What would help</h2>${helpTable(helps)}
<h2>Left out</h2>${unusedTable(unused)}
</main>
<script type="application/json" id="data">${scriptJson(layerTexts(costs, placement))}</script>
<script type="module">${readFileSync(new URL('client.js', import.meta.url), 'utf8')}</script>
</html>
`
}

const colour = (stage: number): string => `stage${stage % stageColours}`

const nameOf = ({ devices }: Stage): string => devices.join(' + ')

function strip({ layers }: ModelCosts, stages: readonly Stage[]): string {
  return stages
    .flatMap(({ from, end }, i) =>
      layers.slice(from, end).map((layer, l) => {
        const first = l === 0 && i > 0 ? ' first' : ''
        const tab = from + l === 0 ? 0 : -1
        return `<button class="${colour(i)}${first}" tabindex="${tab}" aria-pressed="false" aria-label="${escapeHtml(layerName(layer))}"></button>`
      }),
    )
    .join('')
}

/** What is said about each layer. */
function layerTexts({ layers }: ModelCosts, { stages, load }: Placement): string[] {
  return stages.flatMap(stage =>
    layers.slice(stage.from, stage.end).map(layer => {
      const state = heldBytesOf(layer, load) - layer.weightBytes
      const operators = layer.operators.slice(0, 4).map(({ op, dtype }) => `${dtype} ${op}`)
      const more = layer.operators.length - operators.length
      return [
        `${layerName(layer)} on ${nameOf(stage)}`,
        `${gigabytes(layer.weightBytes)} of weights`,
        ...(state > 0 ? [`${gigabytes(state)} of keys and values`] : []),
        [...operators, ...(more > 0 ? [`and ${more} more`] : [])].join(', '),
      ]
        .filter(text => text !== '')
        .join(' · ')
    }),
  )
}

/** One bar for each stage, behind those in front of it. */
function timeline({ stages, latency }: Placement): string {
  const percent = (seconds: number): string => ((100 * seconds) / latency).toFixed(3)
  const slowest = slowestOf(stages)
  let start = 0
  return stages
    .map(({ seconds, hopSeconds }, i) => {
      const bar = `<div class="${colour(i)}"><span style="width: ${percent(start)}%"></span>${
        i > 0 ? `<span class="hop" style="width: ${percent(hopSeconds)}%"></span>` : ''
      }<span class="time${i === slowest ? ' slowest' : ''}" style="width: ${percent(seconds)}%"></span></div>`
      start += hopSeconds + seconds
      return bar
    })
    .join('')
}

const slowestOf = (stages: readonly Stage[]): number =>
  stages.reduce((best, stage, i) => (worst(stage) > worst(stages[best]!) ? i : best), 0)

const worst = ({ seconds, hopSeconds }: Stage): number => Math.max(seconds, hopSeconds)

const row = (cells: readonly (readonly [text: string, kind?: string])[], kind = ''): string =>
  `<tr${kind && ` class="${kind}"`}>${cells.map(([text, own = '']) => `<td${own && ` class="${own}"`}>${escapeHtml(text)}</td>`).join('')}</tr>`

const table = (head: readonly (readonly [text: string, kind?: string])[], rows: readonly string[]): string =>
  `<div class="wide"><table><thead><tr>${head.map(([text, own = '']) => `<th scope="col"${own && ` class="${own}"`}>${escapeHtml(text)}</th>`).join('')}</tr></thead><tbody>${rows.join('')}</tbody></table></div>`

function stageTable(costs: ModelCosts, { stages }: Placement): string {
  const slowest = slowestOf(stages)
  const rows = stages.map((stage, i) =>
    row(
      [
        [nameOf(stage), 'text'],
        [layerRange(costs, stage.from, stage.end), 'text'],
        [milliseconds(stage.seconds)],
        [i === 0 ? '' : milliseconds(stage.hopSeconds)],
      ],
      i === slowest ? 'slowest' : '',
    ),
  )
  return table([['devices', 'text'], ['layers', 'text'], ['computes'], ['receives']], rows)
}

/** A bar for each device of a stage, and for some of the others. */
function memory({ stages, unused }: Placement, fleet: Fleet): string {
  const left = new Set(unused.slice(0, maxOthers).map(({ device }) => device))
  const bar = (name: string, kind: string, used: number, free: number): string => {
    const share = free > 0 ? Math.min(100, (100 * used) / free).toFixed(2) : '0'
    return `<span class="name">${escapeHtml(name)}</span><span class="number">${gigabytes(used)} of ${gigabytes(free)}</span>
<span class="track ${kind}"><span class="used" style="width: ${share}%"></span></span>`
  }
  return [
    ...stages.flatMap(({ devices, bytes, freeBytes: free }, i) =>
      devices.map(name => bar(name, colour(i), bytes, free)),
    ),
    ...fleet.devices
      .filter(({ name }) => left.has(name))
      .map(device => bar(device.name, '', 0, freeBytes(device))),
  ].join('')
}

function helpTable(helps: PlacementReport['helps']): string {
  if (helps.length === 0) return note('None of the changes that were tried saves half a percent or more.')
  const rows = helps.map(({ change, seconds, gain }) =>
    row([[change, 'text'], [milliseconds(seconds)], [`${(100 * gain).toFixed(1)} %`]]),
  )
  return table([['change', 'text'], ['then'], ['less']], rows)
}

function unusedTable(unused: PlacementReport['unused']): string {
  if (unused.length === 0) return note('All devices have layers.')
  const shown = unused.slice(0, maxReasons)
  const rows = shown.map(({ device, why }) =>
    row([
      [device, 'text'],
      [why, 'name'],
    ]),
  )
  const more = unused.length - shown.length
  return `${table(
    [
      ['device', 'text'],
      ['why', 'text'],
    ],
    rows,
  )}${more > 0 ? note(`And ${more} more.`) : ''}`
}
