// metrics.ts: metrics of an evaluation: accuracy, errors, and functions of the caller.
import { argumentError, expectKnownOptions, expectOneOf, expectText } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import type { Tensor } from '../memory/tensor.js'
import { type Batch, batchSizeOf } from './dataset.js'

/**
 * `accuracy`: share of samples whose largest score is that of the target class. `top5`: share of those whose target class is
 * among the five largest scores. `mae`: mean of |output − target|. `rmse`: √ of the mean of (output − target)².
 */
export type MetricName = 'accuracy' | 'top5' | 'mae' | 'rmse'

/** A metric that compares one output with one target. */
export interface MetricTerm {
  /** Which metric it is. */
  readonly type: MetricName
  /** Name of the value of the model. Default: the output that the loss reads, or the first one. */
  readonly output?: string
  /**
   * Name of the value it should have: a field of the batch, or a value of the teacher. For `accuracy` and `top5` class
   * numbers [N, …] or scores [N, …, C]. Default: the target of the loss.
   */
  readonly target?: string
}

/**
 * A metric of the caller: the mean over the samples of a batch.
 * @param outputs - outputs of the model by name
 * @param batch - the batch as it was read
 */
export type MetricFunction = (
  outputs: Readonly<Record<string, Tensor>>,
  batch: Batch,
) => number | Promise<number>

/** Metrics: a list of names, or metrics by the names that results have. */
export type Metrics =
  | readonly MetricName[]
  | Readonly<Record<string, MetricName | MetricTerm | MetricFunction>>

/** A metric with its name. */
export interface NamedMetric {
  readonly name: string
  readonly metric: MetricTerm | MetricFunction
}

const metricNames = ['accuracy', 'top5', 'mae', 'rmse'] as const

/** Values that a metric reads, by name, as {@link MetricTerm} describes them. */
export interface MetricValues {
  readonly output: MetricValue
  readonly target: MetricValue
}

/** One of the values of {@link MetricValues}. */
export interface MetricValue {
  readonly name: string
  readonly shape: readonly number[]
  readonly data: ArrayLike<number | bigint>
}

/**
 * Checks metrics.
 * @throws SparkError ERR_ARGUMENT
 */
export function checkMetrics(metrics: Metrics | undefined, name = 'options.metrics'): NamedMetric[] {
  if (metrics === undefined) return []
  if (typeof metrics !== 'object' || metrics === null)
    throw argumentError(name, "a list such as ['accuracy'], or metrics by name", metrics)
  const entries = Array.isArray(metrics)
    ? (metrics as readonly MetricName[]).map(metric => [metric, metric] as const)
    : Object.entries(metrics as Readonly<Record<string, MetricName | MetricTerm | MetricFunction>>)
  return entries.map(([key, metric]) => {
    if (key === 'loss')
      throw new SparkError('ERR_ARGUMENT', `${name}: 'loss' is always measured: take another name`)
    if (typeof metric === 'function') return { name: key, metric }
    const label = Array.isArray(metrics) ? name : `${name}.${key}`
    if (typeof metric === 'object' && metric !== null) {
      expectKnownOptions(label, metric, ['type', 'output', 'target'])
      expectOneOf(`${label}.type`, metric.type, metricNames)
      for (const part of ['output', 'target'] as const) {
        if (metric[part] !== undefined) expectText(`${label}.${part}`, metric[part])
      }
      return { name: key, metric }
    }
    expectOneOf(label, metric, metricNames)
    return { name: key, metric: { type: metric } }
  })
}

/** Whether larger values are better; undefined for a function of the caller. */
export const isLargerBetter = ({ metric }: NamedMetric): boolean | undefined =>
  typeof metric === 'function' ? undefined : metric.type === 'accuracy' || metric.type === 'top5'

/** The value of a metric over several batches. */
export class Measure {
  readonly #named: NamedMetric
  #sum = 0
  #count = 0

  constructor(named: NamedMetric) {
    this.#named = named
  }

  /**
   * Adds a batch.
   * @param values - what a {@link MetricTerm} reads
   * @throws SparkError ERR_SHAPE for a target that does not fit the output, ERR_ARGUMENT for a function that does not
   * return a number
   */
  async add(
    values: () => MetricValues,
    outputs: Readonly<Record<string, Tensor>>,
    batch: Batch,
  ): Promise<void> {
    const { name, metric } = this.#named
    if (typeof metric === 'function') {
      const value: unknown = await metric(outputs, batch)
      if (typeof value !== 'number')
        throw argumentError(`the result of the metric '${name}'`, 'a number', value)
      const samples = batchSizeOf(batch)
      this.#sum += value * samples
      this.#count += samples
      return
    }
    const read = values()
    const { sum, count } =
      metric.type === 'accuracy'
        ? hits(name, read, 1)
        : metric.type === 'top5'
          ? hits(name, read, 5)
          : distances(name, read, metric.type === 'mae' ? 1 : 2)
    this.#sum += sum
    this.#count += count
  }

  /** The metric of all batches. */
  get value(): number {
    const { metric } = this.#named
    const mean = this.#sum / this.#count
    return typeof metric === 'object' && metric.type === 'rmse' ? Math.sqrt(mean) : mean
  }
}

/** Rows of scores whose target is among the `k` largest. Of equal scores the first counts as the largest. */
function hits(metric: string, { output, target }: MetricValues, k: number): { sum: number; count: number } {
  const { shape, data } = output
  const classes = shape.at(-1) ?? 0
  const rows = shape.slice(0, -1).reduce((product, size) => product * size, 1)
  const isScores = sameShape(shape, target.shape)
  if (shape.length < 2 || (!isScores && target.data.length !== rows))
    throw mismatch(metric, output, target, `class numbers [${shape.slice(0, -1).join(', ')}]`)
  let sum = 0
  for (let row = 0; row < rows; row++) {
    const at = row * classes
    const wanted = isScores ? largest(target.data, at, classes) : Number(target.data[row])
    if (!Number.isInteger(wanted) || wanted < 0 || wanted >= classes) {
      const found = `'${target.name}' has the class ${wanted} in row ${row}`
      throw new SparkError(
        'ERR_ARGUMENT',
        `metric '${metric}': ${found}; '${output.name}' has ${classes} classes`,
      )
    }
    const score = Number(data[at + wanted])
    let better = 0
    for (let i = 0; i < classes; i++) {
      const other = Number(data[at + i])
      if (other > score || (other === score && i < wanted) || Number.isNaN(score)) better++
    }
    if (better < k) sum++
  }
  return { sum, count: rows }
}

/** Index of the largest of `count` elements, the first of equal ones. */
function largest(data: ArrayLike<number | bigint>, start: number, count: number): number {
  let best = 0
  for (let i = 1; i < count; i++) if (data[start + i]! > data[start + best]!) best = i
  return best
}

/** Σ |output − target|^power over all elements. */
function distances(
  metric: string,
  { output, target }: MetricValues,
  power: 1 | 2,
): { sum: number; count: number } {
  if (!sameShape(output.shape, target.shape))
    throw mismatch(metric, output, target, `[${output.shape.join(', ')}]`)
  let sum = 0
  for (let i = 0; i < output.data.length; i++) {
    sum += Math.abs(Number(output.data[i]) - Number(target.data[i])) ** power
  }
  return { sum, count: output.data.length }
}

const sameShape = (a: readonly number[], b: readonly number[]): boolean => a.join() === b.join()

function mismatch(metric: string, output: MetricValue, target: MetricValue, wanted: string): SparkError {
  const found = `'${output.name}' is [${output.shape.join(', ')}] and '${target.name}' [${target.shape.join(', ')}]`
  return new SparkError('ERR_SHAPE', `metric '${metric}': ${found}; give a target of ${wanted}`)
}
