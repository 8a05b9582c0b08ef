// outcome.ts: what came of a simulation, as tables and as a JSON document.
import type { Comparison, MetricDifference } from '../../simulation/comparison.js'
import type { BatchResult } from '../../simulation/results.js'
import { jsonText, print, printPairs, styled } from '../output.js'
import { printTable } from '../table.js'
import type { Refusal } from './scenarios.js'
import { endings, type MetricStatistics, metricStatistics, scenariosPerSecond } from './statistics.js'

/** One algorithm on all scenarios. */
export interface AlgorithmRun {
  readonly label: string
  readonly batch: BatchResult
}

/** A simulation: one run, or two that are compared. */
export interface Outcome {
  readonly vehicle: string
  /** s */
  readonly timeStep: number
  /** Units of metrics by name; '' for none. */
  readonly units: Readonly<Record<string, string>>
  readonly runs: readonly AlgorithmRun[]
  /** Where there are two runs, and a scenario that ran. */
  readonly comparison?: Comparison
  readonly refusals: readonly Refusal[]
}

/** Wrong scenarios that are listed in a table. */
const maxRefusals = 20
/** Characters of a name in a table. */
const maxName = 48

/** A number with four digits; a dash for none. */
export const fourDigits = (value: number | null): string =>
  value === null || Number.isNaN(value) ? '–' : String(Number(value.toPrecision(4)))

/** A name of a metric with its unit. */
export const withUnit = (name: string, unit: string | undefined): string => (unit ? `${name}, ${unit}` : name)

/** Whether the confidence interval of a difference does not include 0. */
export const isClear = ({ interval: [low, high] }: MetricDifference): boolean => low > 0 || high < 0

/** How scenarios ended: `finished 990, collision 10`. */
export const describeEndings = ({ results }: BatchResult): string =>
  Object.entries(endings(results))
    .map(([ended, count]) => `${ended} ${count.toLocaleString('en')}`)
    .join(', ')

/** Prints a simulation as tables. */
export function printOutcome(outcome: Outcome): void {
  const { vehicle, timeStep, runs, refusals } = outcome
  const { results, device } = runs[0]!.batch
  if (refusals.length > 0) printRefusals(refusals)
  const count = `${results.length.toLocaleString('en')} ${results.length === 1 ? 'scenario' : 'scenarios'}`
  print(styled('bold', `${count} on ${device}: ${vehicle}, steps of ${timeStep} s`))
  if (results.length === 0) return
  printPairs(
    runs.map(({ label, batch }) => [
      label,
      `${describeEndings(batch)}; ${(batch.ms / 1000).toFixed(2)} s, ${perSecond(batch)}`,
    ]),
  )
  for (const run of runs) printStatistics(run, outcome)
  if (outcome.comparison) printComparison(outcome.comparison, outcome)
}

const perSecond = (batch: BatchResult): string =>
  `${Math.round(scenariosPerSecond(batch) ?? 0).toLocaleString('en')} scenarios/s`

function printRefusals(refusals: readonly Refusal[]): void {
  printTable(
    ['wrong', 'scenario', 'field', 'why it did not run'],
    refusals
      .slice(0, maxRefusals)
      .map(({ index, name, field, reason }) => [String(index), shortName(name), field, reason]),
    [0],
  )
  const more = refusals.length - maxRefusals
  if (more > 0) print(`and ${more.toLocaleString('en')} more, which --json lists`)
}

function printStatistics({ label, batch: { results } }: AlgorithmRun, { units }: Outcome): void {
  printTable(
    [label, 'mean', 'p5', 'p95', 'worst', 'in'],
    Object.entries(metricStatistics(results)).map(([name, { mean, p5, p95, worst }]) => [
      withUnit(name, units[name]),
      ...[mean, p5, p95, worst?.value ?? null].map(fourDigits),
      shortName(worst?.name ?? ''),
    ]),
    [1, 2, 3, 4],
  )
}

function printComparison({ count, metrics }: Comparison, { runs, units }: Outcome): void {
  const rows = Object.entries(metrics).map(([name, metric]) => {
    const { a, b, difference, interval, lower, higher } = metric
    const numbers = [
      fourDigits(a),
      fourDigits(b),
      fourDigits(difference),
      interval.map(fourDigits).join(' to '),
    ]
    const mark = isClear(metric) ? styled('bold', '*') : ''
    return [withUnit(name, units[name]), ...numbers, mark, String(lower), String(higher)]
  })
  printTable(
    ['metric', 'A', 'B', 'B − A', '95 % interval', '', 'B lower', 'B higher'],
    rows,
    [1, 2, 3, 4, 6, 7],
  )
  print(`A: ${runs[0]!.label}; B: ${runs[1]!.label}; ${count.toLocaleString('en')} scenarios that both ran`)
  print('* the interval of the mean of the paired differences does not include 0')
}

/** A name for a cell of a table. */
const shortName = (name: string): string => (name.length > maxName ? `${name.slice(0, maxName - 1)}…` : name)

/** A simulation as one JSON document, each scenario on a line of its own. */
export function* jsonPieces(outcome: Outcome): Generator<string> {
  const { vehicle, timeStep, runs, comparison, refusals } = outcome
  const [first, second] = runs
  const { count, metrics } = comparison ?? {}
  yield `{${fields({ device: first!.batch.device, vehicle, timeStep, ...summaryOf(first!) })},\n`
  yield* list('results', first!.batch.results)
  yield ',\n'
  yield* list('failed', refusals)
  if (second) {
    yield `,\n"compare": {${fields(summaryOf(second))},\n`
    yield* list('results', second.batch.results)
    yield '},\n'
    yield fields({ comparison: comparison ? { count, metrics } : null })
  }
  yield '}\n'
}

const summaryOf = ({ label, batch }: AlgorithmRun) => ({
  algorithm: label,
  ms: batch.ms,
  scenariosPerSecond: scenariosPerSecond(batch),
  endings: endings(batch.results),
  metrics: metricStatistics(batch.results) satisfies Record<string, MetricStatistics>,
})

/** Fields of an object without the braces. */
const fields = (object: object): string => jsonText(object).slice(1, -1)

function* list(name: string, items: readonly unknown[]): Generator<string> {
  yield `"${name}": [`
  for (const [i, item] of items.entries()) yield `${i === 0 ? '' : ','}\n${jsonText(item)}`
  yield ']'
}
