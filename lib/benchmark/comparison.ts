// comparison.ts: two measurements against each other: latency, throughput, memory, outputs.
import { argumentError, expectKnownOptions, expectText } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { compareOutputs, type OutputDifference } from '../diagnostics/compare.js'
import { Tensor } from '../memory/tensor.js'
import type { BenchmarkMeasurement, OutputValues } from './result.js'
import { type ConfidenceInterval, welchInterval } from './statistics.js'

/** Options of {@link compareBenchmarks}. */
export interface CompareBenchmarksOptions {
  /** The right class of each row of an output, for the accuracy of both. */
  readonly labels?: ArrayLike<number>
  /** Name of the output that has the scores of the classes along its last axis. Default: the first one. */
  readonly output?: string
}

/** Something of both measurements. */
export interface Pair<T> {
  /** Of the first one. */
  readonly a: T
  /** Of the second one. */
  readonly b: T
}

/** A quantity of both measurements; null where it is unknown. */
export type BeforeAfter = Pair<number | null>

/** Two measurements against each other. */
export interface BenchmarkComparison {
  /** Names of the measurements. */
  readonly names: Pair<string>
  /** Mean latencies in milliseconds. */
  readonly latency: Pair<number> & {
    /** b − a */
    readonly difference: number
    /** a / b: how many times as fast `b` is. */
    readonly speedup: number
    /** Welch's 95 % interval of the difference; null for fewer than 3 times of one of them. */
    readonly interval: ConfidenceInterval | null
  }
  /** Inferences of a second. */
  readonly throughput: Pair<number>
  /** Bytes. */
  readonly memory: {
    /** Of the process. */
    readonly rss: BeforeAfter
    /** By which loading let the process grow. */
    readonly growth: BeforeAfter
    /** Peak of the GPU. */
    readonly gpu: BeforeAfter
  }
  /** Joules of an inference. */
  readonly energy: {
    /** Of the processor. */
    readonly cpu: BeforeAfter
    /** Of the GPU. */
    readonly gpu: BeforeAfter
  }
  /** How far the outputs of `b` are from those of `a` on the same inputs; null where they are not known. */
  readonly outputs: readonly OutputDifference[] | null
  /** Share of rows for which the class of the highest score is the label, from 0 to 1; null without labels. */
  readonly accuracy:
    | (Pair<number> & {
        /** Rows that have a label. */
        readonly rows: number
      })
    | null
  /** What could not be compared, and what makes the numbers doubtful. */
  readonly notes: readonly string[]
  /** A few lines for people. */
  toString(): string
}

/**
 * Compares two measurements: results of {@link benchmark}, their peers, or results that were saved as JSON and read again.
 *
 * The difference of mean latencies comes with Welch's 95 % confidence interval (unequal variances, Welch and Satterthwaite's degrees
 * of freedom). It takes runs for independent; those of one process one after another are not quite, so that a difference
 * whose interval is near 0 should be measured again.
 *
 * @param a - what is compared with
 * @param b - what is judged
 * @throws SparkError ERR_ARGUMENT for what is no measurement, an unknown output, or labels that do not fit it
 * @example
 * const result = await benchmark('model.onnx', { precision: 'fp32', versus: [{ precision: 'bf16' }] })
 * console.log(String(compareBenchmarks(result, result.peers[0])))
 */
export function compareBenchmarks(
  a: BenchmarkMeasurement,
  b: BenchmarkMeasurement,
  options: CompareBenchmarksOptions = {},
): BenchmarkComparison {
  expectMeasurement('a', a)
  expectMeasurement('b', b)
  expectKnownOptions('options', options, ['labels', 'output'])
  // A result has the warnings of its peers as well.
  const notes = [a, b].flatMap(({ name, warnings }) => warnings.filter(text => text.startsWith(`${name}: `)))
  const both = (of: (measurement: BenchmarkMeasurement) => number | null | undefined): BeforeAfter => ({
    a: of(a) ?? null,
    b: of(b) ?? null,
  })
  const outputs = differences(a, b, notes)
  return new Comparison({
    names: { a: a.name, b: b.name },
    latency: {
      a: a.mean,
      b: b.mean,
      difference: b.mean - a.mean,
      speedup: a.mean / b.mean,
      interval: welchInterval(a.samples, b.samples),
    },
    throughput: { a: a.throughput, b: b.throughput },
    memory: {
      rss: both(({ use }) => use.memory.rss),
      growth: both(({ use }) => use.memory.growth),
      gpu: both(({ use }) => use.gpu?.memoryUsed?.peak),
    },
    energy: { cpu: both(({ use }) => use.energy.cpu), gpu: both(({ use }) => use.energy.gpu) },
    outputs,
    accuracy: options.labels === undefined ? null : accuracyOf(a, b, options.labels, options.output),
    notes,
  })
}

/** @throws SparkError ERR_ARGUMENT unless `value` is a measurement, as far as comparisons read it */
function expectMeasurement(name: string, value: BenchmarkMeasurement): void {
  const { mean, throughput, samples, warnings, use, outputs } = value ?? {}
  const isNumbers = Array.isArray(samples) && samples.every(ms => typeof ms === 'number')
  const isOutputs = outputs === null || (Array.isArray(outputs) && outputs.every(isOutput))
  const isText = typeof value?.name === 'string' && Array.isArray(warnings)
  const hasUse = typeof use?.memory === 'object' && typeof use.energy === 'object'
  if (
    typeof mean === 'number' &&
    typeof throughput === 'number' &&
    isNumbers &&
    isOutputs &&
    isText &&
    hasUse
  )
    return
  throw argumentError(name, 'a result of benchmark()', value)
}

const isOutput = ({ name, shape, values }: OutputValues): boolean =>
  typeof name === 'string' && Array.isArray(shape) && Array.isArray(values)

/** Outputs as tensors; elements that are not finite are texts in files. */
const tensorsOf = (outputs: readonly OutputValues[]): Record<string, Tensor<'f64'>> =>
  Object.fromEntries(
    outputs.map(({ name, shape, values }) => [
      name,
      Tensor.of(Float64Array.from(values, Number), [...shape], 'f64'),
    ]),
  )

/** Differences of outputs on the same inputs; what cannot be compared is added to `notes`. */
function differences(
  a: BenchmarkMeasurement,
  b: BenchmarkMeasurement,
  notes: string[],
): OutputDifference[] | null {
  if (!a.outputs || !b.outputs) {
    const names = [a, b].flatMap(({ name, outputs }) => (outputs ? [] : [name]))
    notes.push(`outputs are not compared: those of ${names.join(' and ')} are not known`)
    return null
  }
  if (a.inputs === null || a.inputs !== b.inputs) {
    notes.push('outputs are not compared: the inputs differ')
    return null
  }
  try {
    return compareOutputs(tensorsOf(b.outputs), tensorsOf(a.outputs))
  } catch (error) {
    if (!(error instanceof SparkError)) throw error
    notes.push(`outputs are not compared: ${error.message}`)
    return null
  }
}

function accuracyOf(
  a: BenchmarkMeasurement,
  b: BenchmarkMeasurement,
  labels: ArrayLike<number>,
  output: string | undefined,
): BenchmarkComparison['accuracy'] {
  if (output !== undefined) expectText('options.output', output)
  if (typeof labels?.length !== 'number' || labels.length === 0)
    throw argumentError('options.labels', 'an array of classes', labels)
  const [shareA, shareB] = [a, b].map(({ name, outputs }) => {
    const scores = outputs?.find(each => output === undefined || each.name === output)
    if (!scores) {
      const known = outputs?.map(each => each.name).join(', ') || 'none'
      const which = output === undefined ? 'no output' : `no output '${output}'`
      throw new SparkError('ERR_ARGUMENT', `${name} has ${which}; known: ${known}`)
    }
    return rightShare(scores, labels)
  })
  return { a: shareA!, b: shareB!, rows: labels.length }
}

/** The share of rows whose highest score is that of the label. */
function rightShare({ name, shape, values }: OutputValues, labels: ArrayLike<number>): number {
  const classes = shape.at(-1) ?? 0
  const rows = classes > 0 ? values.length / classes : 0
  if (rows !== labels.length) {
    const sizes = `output '${name}' of shape [${shape.join(', ')}] has ${rows} rows of classes`
    throw new SparkError('ERR_ARGUMENT', `options.labels has ${labels.length} classes, but ${sizes}`)
  }
  let right = 0
  for (let row = 0; row < rows; row++) {
    let best = row * classes
    for (let at = best + 1; at < (row + 1) * classes; at++)
      if (Number(values[at]) > Number(values[best])) best = at
    if (best % classes === labels[row]) right++
  }
  return right / rows
}

/** The text of comparisons is no part of their data. */
class Comparison implements BenchmarkComparison {
  declare readonly names: BenchmarkComparison['names']
  declare readonly latency: BenchmarkComparison['latency']
  declare readonly throughput: BenchmarkComparison['throughput']
  declare readonly memory: BenchmarkComparison['memory']
  declare readonly energy: BenchmarkComparison['energy']
  declare readonly outputs: BenchmarkComparison['outputs']
  declare readonly accuracy: BenchmarkComparison['accuracy']
  declare readonly notes: BenchmarkComparison['notes']

  constructor(data: Omit<BenchmarkComparison, 'toString'>) {
    Object.assign(this, data)
  }

  toString(): string {
    const { names, latency, throughput, outputs, accuracy, notes } = this
    const digits = (error: number): string => (error === 0 ? '0' : error.toExponential(2))
    return [
      ...notes,
      `${names.b} against ${names.a}`,
      `latency: ${latency.a.toFixed(3)} ms -> ${latency.b.toFixed(3)} ms; ${differenceText(latency)}`,
      `throughput: ${throughput.a.toFixed(1)} -> ${throughput.b.toFixed(1)} inferences/s`,
      ...(outputs ?? []).map(
        ({ name, cosine, maxError, meanError }) =>
          `output ${name}: cosine ${cosine.toFixed(7)}, largest error ${digits(maxError)}, mean error ${digits(meanError)}`,
      ),
      ...(accuracy
        ? [`accuracy: ${percent(accuracy.a)} -> ${percent(accuracy.b)} of ${accuracy.rows} rows`]
        : []),
    ].join('\n')
  }
}

const percent = (share: number): string => `${(100 * share).toFixed(2)} %`

/** `1.24 times as fast, -0.213 ms (95 %: -0.230 to -0.196)`. */
export function differenceText({ difference, speedup, interval }: BenchmarkComparison['latency']): string {
  const signed = (ms: number): string => `${ms > 0 ? '+' : ''}${ms.toFixed(3)}`
  const range = interval ? ` (95 %: ${signed(interval.low)} to ${signed(interval.high)})` : ''
  return `${speedup.toFixed(2)} times as fast, ${signed(difference)} ms${range}`
}
