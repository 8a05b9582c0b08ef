// comparison.ts: two algorithms on the same scenarios.
import { SparkError } from '../core/errors.js'
import { studentQuantile } from '../core/student-quantile.js'
import type { BatchResult, ScenarioResult } from './results.js'

/** How a metric differs between two algorithms, over scenarios that both of them ran. */
export interface MetricDifference {
  /** Mean with the first algorithm. */
  readonly a: number
  /** Mean with the second one. */
  readonly b: number
  /** Mean of b − a, scenario by scenario. */
  readonly difference: number
  /** The confidence interval of 95 % of the difference: Student's t of the paired differences. NaN for a single scenario. */
  readonly interval: readonly [low: number, high: number]
  /** Scenarios in which b is below a. */
  readonly lower: number
  /** Scenarios in which b is above a. */
  readonly higher: number
}

/** Two algorithms on the same scenarios. */
export interface Comparison {
  /** Scenarios that both ran. */
  readonly count: number
  /** By the names of the metrics. */
  readonly metrics: Readonly<Record<string, MetricDifference>>
  /** What came of the scenarios with the first algorithm. */
  readonly a: BatchResult
  /** What came of them with the second one. */
  readonly b: BatchResult
}

/**
 * Compares results of the same scenarios.
 * @throws SparkError ERR_ARGUMENT when no scenario ran
 */
export function compareResults(a: BatchResult, b: BatchResult): Comparison {
  const others = new Map(b.results.map(result => [result.index, result]))
  const pairs = a.results.flatMap((result): [ScenarioResult, ScenarioResult][] => {
    const other = others.get(result.index)
    return other ? [[result, other]] : []
  })
  if (pairs.length === 0)
    throw new SparkError('ERR_ARGUMENT', 'there is no scenario that both algorithms ran')
  const names = Object.keys(pairs[0]![0].metrics)
  const metrics = names.map((name): [string, MetricDifference] => [
    name,
    differenceOf(pairs.map(([one, other]): [number, number] => [one.metrics[name]!, other.metrics[name]!])),
  ])
  return { count: pairs.length, metrics: Object.fromEntries(metrics), a, b }
}

function differenceOf(pairs: readonly (readonly [number, number])[]): MetricDifference {
  const count = pairs.length
  const meanOf = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / count
  const differences = pairs.map(([a, b]) => b - a)
  const difference = meanOf(differences)
  const variance = differences.reduce((sum, value) => sum + (value - difference) ** 2, 0) / (count - 1)
  const half = studentQuantile(count - 1) * Math.sqrt(variance / count)
  return {
    a: meanOf(pairs.map(([a]) => a)),
    b: meanOf(pairs.map(([, b]) => b)),
    difference,
    interval: [difference - half, difference + half],
    lower: differences.filter(value => value < 0).length,
    higher: differences.filter(value => value > 0).length,
  }
}
