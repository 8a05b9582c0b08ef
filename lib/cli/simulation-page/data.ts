// data.ts: what the script of the page of a simulation draws: rows, sorted metrics, and scenarios step by step.
import { printable } from '../../core/printable.js'
import type { DrivingScenario } from '../../simulation/driving-scenario.js'
import type { ScenarioResult } from '../../simulation/results.js'
import type { AlgorithmRun, Outcome } from '../simulate/outcome.js'
import { lowerIsWorse, quantile, sortedValues } from '../simulate/statistics.js'
import { type Trajectory, type TrajectorySource, trajectories } from '../simulate/trajectories.js'

/** Scenarios that the table has; more would make a page slow. */
export const maxRows = 2000
/** Scenarios that are shown step by step. */
const maxChosen = 24
/** Points of a sorted metric. */
const maxShares = 201
/** Points of a plot over time. */
const maxPoints = 400
/** Characters of a name. */
const maxName = 200
/** m: a gap that says that no car is seen. */
const noGap = 200

/** Columns of a scenario over time. */
const columns = ['speed', 'gap', 'acceleration', 'lateralError', 'x', 'y'] as const

/** A text as the page shows it. */
export const pageName = (name: string): string =>
  printable(name.length > maxName ? `${name.slice(0, maxName)}…` : name)

/** Everything that the script is given. */
export async function pageData(
  outcome: Outcome,
  sources: readonly TrajectorySource[],
  scenarios: readonly DrivingScenario[],
  signal: AbortSignal,
) {
  const { runs, units } = outcome
  const metrics = Object.keys(runs[0]!.batch.results[0]?.metrics ?? {})
  const order = worstFirst(runs, metrics)
  const chosen = order.slice(0, maxChosen)
  const steps = await Promise.all(
    sources.map(async ({ runner }) => {
      const all: Trajectory[] = []
      for await (const trajectory of trajectories(runner, scenarios, chosen, signal)) all.push(trajectory)
      return all
    }),
  )
  const byIndex = runs.map(({ batch }) => new Map(batch.results.map(result => [result.index, result])))
  return {
    metrics: metrics.map(name => ({
      name,
      unit: units[name] ?? '',
      sorted: runs.map(run => shares(name, run)),
    })),
    rows: order.slice(0, maxRows).map(index => {
      const results = byIndex.map(results => results.get(index)!)
      return {
        index,
        name: pageName(results[0]!.name),
        ended: results.map(({ ended }) => ended),
        values: results.map(result => metrics.map(name => rounded(result.metrics[name]!))),
      }
    }),
    chosen: chosen.map((index, i) => ({
      index,
      name: pageName(byIndex[0]!.get(index)!.name),
      runs: steps.map(all => overTime(all[i]!)),
    })),
  }
}

/** Indices of scenarios: those that did not finish first, then the worst by cost, or by the first metric without it. */
function worstFirst(runs: readonly AlgorithmRun[], metrics: readonly string[]): number[] {
  const metric = metrics.includes('cost') ? 'cost' : metrics[0]
  const sign = metric !== undefined && lowerIsWorse.has(metric) ? -1 : 1
  const badness = ({ ended, metrics }: ScenarioResult): number => {
    const value = metric === undefined ? 0 : sign * metrics[metric]!
    return ended === 'finished' ? value : Number.POSITIVE_INFINITY
  }
  const worst = new Map<number, number>()
  for (const { batch } of runs)
    for (const result of batch.results)
      worst.set(result.index, Math.max(worst.get(result.index) ?? Number.NEGATIVE_INFINITY, badness(result)))
  return [...worst].sort(([i, a], [j, b]) => (a === b ? i - j : a > b ? -1 : 1)).map(([index]) => index)
}

/** A metric at equal shares of the scenarios, from its lowest value to its highest. */
function shares(name: string, { batch }: AlgorithmRun): (number | null)[] {
  const sorted = sortedValues(name, batch.results)
  const count = Math.min(maxShares, sorted.length)
  return Array.from({ length: count }, (_, i) => rounded(quantile(sorted, count === 1 ? 0 : i / (count - 1))))
}

/** A scenario over time, thinned out to what a plot can show; the last step stays. */
function overTime({ ended, seconds, trajectory }: Trajectory) {
  const count = trajectory.time!.length
  const stride = Math.max(1, Math.ceil(count / maxPoints))
  const at = Array.from({ length: count }, (_, step) => step).filter(
    step => step % stride === 0 || step === count - 1,
  )
  const column = (values: Float32Array): (number | null)[] => at.map(step => rounded(values[step]!))
  const gap = at.map(step => {
    const metres = trajectory.gap![step]!
    return metres < noGap ? rounded(metres) : null
  })
  const target = at.map(step => targetAt(trajectory, step).map(rounded))
  return {
    ended,
    seconds,
    time: column(trajectory.time!),
    ...Object.fromEntries(columns.map(name => [name, column(trajectory[name]!)])),
    gap,
    target,
  }
}

/** Where the middle of the car should be: its lateral error to the right of where it is, across the lane. */
function targetAt(trajectory: Trajectory['trajectory'], step: number): [number, number] {
  const value = (name: string): number => trajectory[name]![step]!
  const direction = value('yaw') - value('headingError')
  const error = value('lateralError')
  return [value('x') + error * Math.sin(direction), value('y') - error * Math.cos(direction)]
}

/** With five digits; null for what is no finite number. */
const rounded = (value: number): number | null =>
  Number.isFinite(value) ? Number(value.toPrecision(5)) : null
