// statistics.ts: metrics over all scenarios of a simulation.
import type { BatchResult, ScenarioResult } from '../../simulation/results.js'

/** Metrics of which a lower value is worse. */
export const lowerIsWorse = new Set(['timeToCollision', 'gap', 'speed'])

/** One metric over all scenarios; null where no value is finite. */
export interface MetricStatistics {
  readonly mean: number | null
  /** 5 % of the values lie below it. */
  readonly p5: number | null
  /** 95 % of the values lie below it. */
  readonly p95: number | null
  /** Null also where all scenarios have the same value. */
  readonly worst: { readonly value: number; readonly index: number; readonly name: string } | null
}

/** Statistics of each metric, by its name. Values that are not finite are left out. */
export function metricStatistics(results: readonly ScenarioResult[]): Record<string, MetricStatistics> {
  const names = Object.keys(results[0]?.metrics ?? {})
  return Object.fromEntries(names.map(name => [name, statisticsOf(name, results)]))
}

function statisticsOf(name: string, results: readonly ScenarioResult[]): MetricStatistics {
  const finite = results.filter(result => Number.isFinite(result.metrics[name]))
  const sorted = sortedValues(name, finite)
  if (sorted.length === 0) return { mean: null, p5: null, p95: null, worst: null }
  const [lowest, highest] = [sorted[0]!, sorted.at(-1)!]
  const value = lowerIsWorse.has(name) ? lowest : highest
  const { index, name: scenario } = finite.find(result => result.metrics[name] === value)!
  return {
    mean: sorted.reduce((sum, each) => sum + each, 0) / sorted.length,
    p5: quantile(sorted, 0.05),
    p95: quantile(sorted, 0.95),
    worst: lowest === highest ? null : { value, index, name: scenario },
  }
}

/** Finite values of a metric, ascending. */
export const sortedValues = (name: string, results: readonly ScenarioResult[]): Float64Array =>
  Float64Array.from(results.map(result => result.metrics[name]!).filter(Number.isFinite)).sort()

/** A quantile of sorted values, between two of them by a straight line. */
export function quantile(sorted: ArrayLike<number>, share: number): number {
  const at = share * (sorted.length - 1)
  const [below, above] = [sorted[Math.floor(at)]!, sorted[Math.ceil(at)]!]
  return below + (above - below) * (at % 1)
}

/** How many scenarios ended in which way, the most frequent first. */
export function endings(results: readonly ScenarioResult[]): Record<string, number> {
  const counts = new Map<string, number>()
  for (const { ended } of results) counts.set(ended, (counts.get(ended) ?? 0) + 1)
  return Object.fromEntries([...counts].sort(([, a], [, b]) => b - a))
}

/** Scenarios in a second, compilation not included. */
export const scenariosPerSecond = ({ results, ms }: BatchResult): number | null =>
  ms > 0 ? (1000 * results.length) / ms : null
