// metrics.ts: numbers about a scenario from what is measured in each of its steps.
import type { Metric } from './world.js'

/** The mean of a measure over the steps. */
export const mean = (measure: string, unit: string): Metric => ({
  unit,
  start: 0,
  accumulate: (total, measures) => total.add(measures[measure]!),
  finish: (total, steps) => (steps === 0 ? 0 : total / steps),
})

/** The root of the mean of the squares of a measure. */
export const rootMeanSquare = (measure: string, unit: string): Metric => ({
  unit,
  start: 0,
  accumulate: (total, measures) => total.add(measures[measure]!.square()),
  finish: (total, steps) => (steps === 0 ? 0 : Math.sqrt(total / steps)),
})

/** The largest value of a measure; `floor` when there is none above it. */
export const largest = (measure: string, unit: string, floor = 0): Metric => ({
  unit,
  start: floor,
  accumulate: (total, measures) => total.maximum(measures[measure]!),
})

/** The smallest value of a measure; `ceiling` when there is none below it. */
export const smallest = (measure: string, unit: string, ceiling: number): Metric => ({
  unit,
  start: ceiling,
  accumulate: (total, measures) => total.minimum(measures[measure]!),
})

/** The sum of a measure over the steps. */
export const sum = (measure: string, unit: string): Metric => ({
  unit,
  start: 0,
  accumulate: (total, measures) => total.add(measures[measure]!),
})
