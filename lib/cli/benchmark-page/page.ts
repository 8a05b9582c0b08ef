// page.ts: HTML page of benchmarks: warnings, tables, latencies as plots, in one file without requests.
import { readFileSync } from 'node:fs'
import { percentile } from '../../benchmark/statistics.js'
import { escapeHtml, scriptJson } from '../html.js'
import { plotLibrary } from '../plots.js'
import { style } from './style.js'

/** Names and values below a headline. */
export interface PageTable {
  readonly title: string
  readonly head: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

/** What a page shows. */
export interface BenchmarkPage {
  readonly title: string
  /** Where and how it was measured. */
  readonly facts: readonly (readonly [string, string])[]
  readonly warnings: readonly string[]
  readonly tables: readonly PageTable[]
  /** Milliseconds of each run, of all that was measured. */
  readonly series: readonly { readonly name: string; readonly samples: readonly number[] }[]
}

/** Points of a curve; of more runs some are left out. */
const maxPoints = 4000
const percentiles = Array.from({ length: 101 }, (_, i) => i)

/** The page. */
export function benchmarkPage({ title, facts, warnings, tables, series }: BenchmarkPage): string {
  const plots = plotLibrary()
  const script = readFileSync(new URL('client.js', import.meta.url), 'utf8')
  const measured = series.filter(({ samples }) => samples.length > 0)
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escapeHtml(title)}</title>
<style>${plots.style}
${style}</style>
<header><h1>${escapeHtml(title)}</h1>
<button id="theme" title="light or dark">Dark</button></header>
<main>
${warnings.map(text => `<p class="warning" role="alert">${escapeHtml(text)}</p>`).join('\n')}
${tables.map(tableOf).join('\n')}
${measured.length > 0 ? plotParts : ''}
<section><h2>Machine and settings</h2>${pairs(facts)}</section>
</main>
<noscript>The plots need JavaScript.</noscript>
<script type="application/json" id="data">${scriptJson(measured.map(curves))}</script>
<script>${plots.script}</script>
<script type="module">${script}</script>
</html>
`
}

const plotParts = `<section><h2>Latency by percentile, ms</h2>
<div class="plot" id="percentiles" role="img" aria-label="latency by percentile"></div></section>
<section><h2>Latency by run, ms</h2>
<div class="plot" id="runs" role="img" aria-label="latency by run"></div></section>`

const pairs = (rows: BenchmarkPage['facts']): string =>
  `<dl>${rows.map(([name, value]) => `<dt>${escapeHtml(name)}</dt><dd>${escapeHtml(value)}</dd>`).join('')}</dl>`

function tableOf({ title, head, rows }: PageTable): string {
  const cells = (row: readonly string[]): string =>
    row
      .map((text, i) =>
        i === 0 ? `<th scope="row">${escapeHtml(text)}</th>` : `<td>${escapeHtml(text)}</td>`,
      )
      .join('')
  return `<section><h2>${escapeHtml(title)}</h2><div class="table" tabindex="0"><table>
<thead><tr>${head.map(text => `<th scope="col">${escapeHtml(text)}</th>`).join('')}</tr></thead>
<tbody>${rows.map(row => `<tr>${cells(row)}</tr>`).join('')}</tbody></table></div></section>`
}

/** What the script of the page draws: latencies in the order of the runs and by percentile. */
function curves({ name, samples }: BenchmarkPage['series'][number]) {
  const sorted = [...samples].sort((a, b) => a - b)
  const stride = Math.ceil(samples.length / maxPoints)
  const rounded = (ms: number): number => Number(ms.toPrecision(6))
  return {
    name,
    stride,
    runs: samples.filter((_, i) => i % stride === 0).map(rounded),
    percentiles: percentiles.map(share => rounded(percentile(sorted, share / 100))),
  }
}
