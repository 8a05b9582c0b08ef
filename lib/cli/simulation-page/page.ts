// page.ts: HTML page of a simulation: metrics, scenarios, and the worst of them step by step, in one file without requests.
import { readFileSync } from 'node:fs'
import type { DrivingScenario } from '../../simulation/driving-scenario.js'
import { escapeHtml, scriptJson } from '../html.js'
import { plotLibrary } from '../plots.js'
import { note, pairs } from '../route-page/page.js'
import {
  type AlgorithmRun,
  describeEndings,
  fourDigits,
  isClear,
  type Outcome,
  withUnit,
} from '../simulate/outcome.js'
import { endings, metricStatistics, scenariosPerSecond } from '../simulate/statistics.js'
import type { TrajectorySource } from '../simulate/trajectories.js'
import { maxRows, pageData, pageName } from './data.js'
import { style } from './style.js'

/** Wrong scenarios that are listed. */
const maxRefusals = 200

/**
 * A page of a simulation. The scenarios that it shows step by step run again.
 * @throws SparkError as {@link ScenarioRunner.runBatch}; the reason of the signal
 */
export async function simulationPage(
  outcome: Outcome,
  sources: readonly TrajectorySource[],
  scenarios: readonly DrivingScenario[],
  signal: AbortSignal,
): Promise<string> {
  const { runs } = outcome
  const data = await pageData(outcome, sources, scenarios, signal)
  const plots = plotLibrary()
  const script = readFileSync(new URL('client.js', import.meta.url), 'utf8')
  const title = `Simulation: ${runs.map(({ label }) => label).join(' and ')}`
  const hasResults = data.rows.length > 0
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escapeHtml(title)}</title>
<style>${plots.style}
${style}</style>
<header><h1>${escapeHtml(title)}</h1>
<button id="theme" title="light or dark">Dark</button></header>
<main>
<h2>Summary</h2>${pairs(facts(outcome))}
${refusals(outcome)}
${hasResults ? body(outcome) : note('No scenario ran.')}
</main>
<noscript>This page needs JavaScript.</noscript>
<script type="application/json" id="data">${scriptJson(data)}</script>
<script>${plots.script}</script>
<script type="module">${script}</script>
</html>
`
}

function facts({ runs, vehicle, timeStep }: Outcome): (readonly [string, string])[] {
  const { results, device } = runs[0]!.batch
  return [
    ['scenarios', results.length.toLocaleString('en')],
    ['world', `${vehicle}, steps of ${timeStep} s, on ${device}`],
    ...runs.map(({ label, batch }): readonly [string, string] => {
      const speed = Math.round(scenariosPerSecond(batch) ?? 0).toLocaleString('en')
      return [
        label,
        `${describeEndings(batch) || '–'}; ${(batch.ms / 1000).toFixed(2)} s, ${speed} scenarios/s`,
      ]
    }),
  ]
}

const body = (outcome: Outcome): string => `<ul class="legend">${legend(outcome)}</ul>
<h2>Metrics</h2>${comparison(outcome)}${outcome.runs.map(run => statistics(run, outcome)).join('')}
<h2>Metrics of all scenarios, sorted</h2><p>The share of the scenarios, from the lowest value to the highest.</p><div class="plots" id="sorted"></div>
<h2 id="single">Step by step</h2>
<div class="tools"><button id="previous" title="previous scenario">←</button><button id="next" title="next scenario">→</button>
<label>scenario <select id="scenario"></select></label></div>
<p id="ended"></p>
<h3>Path, m (dotted: where it should be)</h3><svg id="path" role="img" aria-label="path from above"></svg>
<output id="now"></output>
<div class="plots" id="steps"></div>
<h2>Scenarios</h2>${scenarioTable(outcome)}`

const legend = ({ runs }: Outcome): string =>
  runs.map(({ label }, i) => `<li><span class="swatch ${'ab'[i]}"></span>${escapeHtml(label)}</li>`).join('')

/** Names of columns with texts. */
const textColumns = new Set(['metric', 'in', 'index', 'scenario', 'field', 'why'])

function table(head: readonly string[], rows: readonly string[]): string {
  const cells = head.map(
    text => `<th scope="col"${textColumns.has(text) ? ' class="text"' : ''}>${escapeHtml(text)}</th>`,
  )
  return `<div class="wide"><table><thead><tr>${cells.join('')}</tr></thead><tbody>${rows.join('')}</tbody></table></div>`
}

const cell = (text: string, kind = ''): string => `<td${kind && ` class="${kind}"`}>${escapeHtml(text)}</td>`

function statistics({ label, batch: { results } }: AlgorithmRun, { units }: Outcome): string {
  const rows = Object.entries(metricStatistics(results)).map(([name, { mean, p5, p95, worst }]) => {
    const numbers = [mean, p5, p95, worst?.value ?? null].map(value => cell(fourDigits(value)))
    const scenario = cell(pageName(worst?.name ?? ''), 'name')
    return `<tr>${cell(withUnit(name, units[name]), 'text')}${numbers.join('')}${scenario}</tr>`
  })
  return `<h3>${escapeHtml(label)}</h3>${table(['metric', 'mean', 'p5', 'p95', 'worst', 'in'], rows)}`
}

function comparison({ comparison, runs, units }: Outcome): string {
  if (!comparison) return ''
  const rows = Object.entries(comparison.metrics).map(([name, metric]) => {
    const { a, b, difference, interval, lower, higher } = metric
    const numbers = [
      fourDigits(a),
      fourDigits(b),
      fourDigits(difference),
      interval.map(fourDigits).join(' to '),
    ]
    const cells = [...numbers, String(lower), String(higher)].map(text => cell(text))
    const mark = isClear(metric) ? ' class="clear"' : ''
    return `<tr${mark}>${cell(withUnit(name, units[name]), 'text')}${cells.join('')}</tr>`
  })
  const head = ['metric', 'A', 'B', 'B − A', '95 % interval', 'B lower', 'B higher']
  const names = `A: ${runs[0]!.label}; B: ${runs[1]!.label}; ${comparison.count} scenarios that both ran. Bold: the interval of the mean of the paired differences does not include 0.`
  return `<h3>${escapeHtml(names)}</h3><div id="comparison">${table(head, rows)}</div>`
}

function refusals({ refusals }: Outcome): string {
  if (refusals.length === 0) return ''
  const rows = refusals
    .slice(0, maxRefusals)
    .map(
      ({ index, name, field, reason }) =>
        `<tr>${cell(String(index), 'text')}${[pageName(name), field, reason].map(text => cell(text, 'name')).join('')}</tr>`,
    )
  const more = refusals.length - rows.length
  return `<h2>Scenarios that could not run</h2><div id="wrong">${table(['index', 'scenario', 'field', 'why'], rows)}</div>
${more > 0 ? note(`And ${more} more.`) : ''}`
}

function scenarioTable({ runs }: Outcome): string {
  const kinds = [...new Set(runs.flatMap(({ batch }) => Object.keys(endings(batch.results))))]
  const options = kinds.map(kind => `<option>${escapeHtml(kind)}</option>`).join('')
  const shown =
    runs.length === 1
      ? ''
      : `<label>metrics of <select id="shown"><option value="0">A</option><option value="1">B</option><option value="difference">B − A</option></select></label>`
  const count = runs[0]!.batch.results.length
  const rest = count > maxRows ? note(`The ${maxRows} worst of ${count.toLocaleString('en')} scenarios.`) : ''
  return `${rest}<div class="tools"><label>ended <select id="filter"><option value="">all</option>${options}</select></label>
${shown}<span id="count"></span></div>
<div class="wide"><table id="scenarios"><thead></thead><tbody></tbody></table></div><button id="more">Show more</button>`
}
