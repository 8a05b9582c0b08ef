// report.ts: training curves as a self-contained HTML page without scripts.
import path from 'node:path'
import { argumentError, expectText } from '../core/checks.js'
import { writeFileAtomic } from '../io/atomic-write.js'
import type { TrainingEvent } from './options.js'
import type { Validation } from './validation.js'

/** Options of {@link writeReport}. */
export interface ReportOptions {
  /** Headline. Default: Training. */
  readonly title?: string
  /** Rows of the table at the top: pairs of a name and a value. */
  readonly facts?: readonly (readonly [string, string])[]
  /** Validations, such as those of {@link readValidations}; each of their values gets a curve. */
  readonly validations?: readonly Validation[]
}

/** A curve of a chart. */
interface Series {
  readonly title: string
  /** By the number of the step. */
  readonly points: readonly (readonly [step: number, value: number])[]
  /** Whether a smoothed curve is drawn over it. */
  readonly smooth: boolean
}

const [width, height, left, bottom] = [720, 220, 64, 24]

/**
 * Writes a page with the curves of the loss, the validation, the gradient norm, the learning rate and the speed.
 * @throws SparkError ERR_IO
 */
export async function writeReport(
  file: string,
  events: readonly TrainingEvent[],
  options: ReportOptions = {},
): Promise<void> {
  expectText('file', file)
  await writeFileAtomic(path.resolve(file), [Buffer.from(reportPage(events, options))])
}

/** The page that {@link writeReport} writes. */
export function reportPage(events: readonly TrainingEvent[], options: ReportOptions = {}): string {
  if (!Array.isArray(events) || !events.every(event => Number.isFinite(event?.step)))
    throw argumentError('events', 'an array of training events', events)
  const { title = 'Training', facts = [], validations = [] } = options
  const series = (title: string, of: (event: TrainingEvent) => number, smooth = false): Series => ({
    title,
    smooth,
    points: events
      .map(event => [event.step, of(event)] as const)
      .filter(([, value]) => Number.isFinite(value)),
  })
  const charts = [
    series('loss', event => event.loss, true),
    ...validationSeries(validations),
    series('gradient norm', event => event.gradientNorm, true),
    series('learning rate', event => event.learningRate),
    series('loss scale', event => event.lossScale ?? Number.NaN),
    series('samples per second', event => event.samplesPerSecond, true),
  ]
  const last = events.at(-1)
  const end: [string, string][] = last
    ? [
        ['steps', String(last.step)],
        ['last loss', last.loss.toPrecision(4)],
      ]
    : []
  const best = validations.findLast(validation => validation.best)
  if (best) end.push(['best validation', `${valuesOf(best)}, step ${best.step}`])
  const rows = [...facts, ...end].map(
    ([name, value]) => `<tr><th>${escaped(name)}</th><td>${escaped(value)}</td></tr>`,
  )
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>${escaped(title)}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: ${width}px; padding: 0 1rem; color: #222; background: #fff }
th { text-align: left; font-weight: 500; padding-right: 1.5rem } svg { width: 100%; height: auto; font-size: 11px }
.raw { stroke: #9bb8d3; fill: none } .smooth { stroke: #14548c; fill: none; stroke-width: 1.8 } .grid { stroke: #e4e4e4 } text { fill: #666 }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181a1b } .grid { stroke: #333 } .smooth { stroke: #7db8ec } .raw { stroke: #41617e } }
</style>
<h1>${escaped(title)}</h1>
<table>${rows.join('')}</table>
${charts.map(chart).join('\n')}
</html>
`
}

/** A curve for the loss and for each metric. */
function validationSeries(validations: readonly Validation[]): Series[] {
  const names = Object.keys(validations[0]?.metrics ?? {})
  const series = (title: string, of: (validation: Validation) => number): Series => ({
    title,
    smooth: false,
    points: validations
      .map(validation => [validation.step, of(validation)] as const)
      .filter(([, value]) => Number.isFinite(value)),
  })
  return [
    series('validation loss', ({ loss }) => loss),
    ...names.map(name => series(`validation ${escaped(name)}`, ({ metrics }) => metrics[name] ?? Number.NaN)),
  ]
}

const valuesOf = ({ loss, metrics }: Validation): string =>
  Object.entries({ loss, ...metrics })
    .map(([name, value]) => `${name} ${value.toPrecision(4)}`)
    .join(', ')

function chart({ title, points, smooth }: Series): string {
  if (points.length === 0) return ''
  const [steps, values] = [points.map(([step]) => step), points.map(([, value]) => value)]
  const [low, high] = rangeOf(values)
  const [first, last] = [steps[0]!, Math.max(steps.at(-1)!, steps[0]! + 1)]
  const x = (step: number): string =>
    (left + ((step - first) / (last - first)) * (width - left - 8)).toFixed(1)
  const y = (value: number): string =>
    (8 + (1 - (value - low) / (high - low)) * (height - bottom - 8)).toFixed(1)
  const line = (style: string, list: readonly number[]): string =>
    `<polyline class="${style}" points="${list.map((value, i) => `${x(steps[i]!)},${y(value)}`).join(' ')}"/>`
  const ticks = [0, 1, 2, 3].map(i => low + ((high - low) * i) / 3)
  const grid = ticks.map(value => {
    const at = y(value)
    const label = Number(value.toPrecision(3)).toString()
    return `<line class="grid" x1="${left}" x2="${width - 8}" y1="${at}" y2="${at}"/><text x="${left - 6}" y="${at}" text-anchor="end" dominant-baseline="middle">${label}</text>`
  })
  const ends = [first, last].map((step, i) => {
    return `<text x="${x(step)}" y="${height - 4}" text-anchor="${i === 0 ? 'start' : 'end'}">step ${step}</text>`
  })
  const curves = smooth ? [line('raw', values), line('smooth', smoothed(values))] : [line('smooth', values)]
  const picture = [...grid, ...ends, ...curves].join('')
  return `<h2>${title}</h2>\n<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${title}">${picture}</svg>`
}

/** Minimum and maximum, widened if they are equal. */
function rangeOf(values: readonly number[]): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
  for (const value of values) {
    low = Math.min(low, value)
    high = Math.max(high, value)
  }
  const margin = high > low ? 0 : Math.abs(high) || 1
  return [low - margin / 2, high + margin / 2]
}

/** Exponential moving average over about a thirtieth of the values. */
function smoothed(values: readonly number[]): number[] {
  const share = Math.min(1, 30 / values.length)
  let mean = values[0]!
  return values.map(value => {
    mean += share * (value - mean)
    return mean
  })
}

const escaped = (text: string): string => text.replace(/[&<>"]/g, letter => `&#${letter.charCodeAt(0)};`)
