// signal-series.ts: samples of signals as they are collected, and their rows at common times.
import { SparkError } from '../../core/errors.js'
import { countsBefore, interpolate } from './align.js'
import type { Sample, SignalPath } from './signal-path.js'

/** A signal over time. */
export interface SignalColumn {
  /** The name that was asked for; of lists with the number behind it, such as `cameraOdometry.trans.0`. */
  readonly name: string
  /** [rows]; NaN where there is none yet. true is 1, false 0; texts are indices of `texts`. */
  readonly values: Float64Array
  /** The texts that occur; null of numbers. */
  readonly texts: readonly string[] | null
}

/** Samples that have their times in common. */
export interface Series {
  /** s, in any order. */
  readonly times: Float64Array
  readonly columns: readonly SeriesColumn[]
}

/** A column of samples. */
export interface SeriesColumn extends SignalColumn {
  /** Index of the signal among those that were asked for. */
  readonly order: number
  /** Whether values between two samples are between theirs; those of texts and of true and false are not. */
  readonly isContinuous: boolean
}

/** Columns that one signal may have. */
const maxWidth = 1000

/** Collects the samples of one signal. */
export class Collector {
  readonly #name: string
  readonly #order: number
  readonly #columns: number[][] = []
  readonly #texts = new Map<string, number>()
  #rows = 0
  #isList = false
  #isContinuous = true

  constructor({ name }: SignalPath, order: number) {
    this.#name = name
    this.#order = order
  }

  /**
   * Adds what an event has.
   * @throws SparkError ERR_ARGUMENT for long lists
   */
  add({ list, sample }: { list: boolean; sample: Sample }): void {
    const name = this.#name
    if (sample.length > maxWidth)
      throw new SparkError(
        'ERR_ARGUMENT',
        `signal ${name} has ${sample.length} values, ${maxWidth} at most: name one of them, such as ${name}.0`,
      )
    this.#isList ||= list
    while (this.#columns.length < sample.length)
      this.#columns.push(new Array<number>(this.#rows).fill(Number.NaN))
    this.#columns.forEach((column, i) => {
      const value = sample[i]
      column.push(value === undefined ? Number.NaN : this.#number(value))
    })
    this.#rows++
  }

  #number(value: Sample[number]): number {
    if (typeof value === 'number' || typeof value === 'bigint') return Number(value)
    this.#isContinuous = false
    if (typeof value === 'boolean') return Number(value)
    const code = this.#texts.get(value) ?? this.#texts.size
    this.#texts.set(value, code)
    return code
  }

  /** The columns: at least one. */
  columns(): SeriesColumn[] {
    const name = this.#name
    const columns =
      this.#columns.length > 0 ? this.#columns : [new Array<number>(this.#rows).fill(Number.NaN)]
    return columns.map((column, i) => ({
      name: this.#isList ? `${name}.${i}` : name,
      values: Float64Array.from(column),
      texts: this.#texts.size > 0 ? [...this.#texts.keys()] : null,
      isContinuous: this.#isContinuous,
      order: this.#order,
    }))
  }
}

/** Which rows are made of samples. */
export interface RowOptions {
  /** The first time, in seconds. */
  readonly from?: number
  /** The time to stop before, in seconds. */
  readonly to?: number
  /** Rows a second. Default: a row for each sample of the first signal. */
  readonly rate?: number
  /** Whether numbers are interpolated linearly. Default: the latest sample holds. */
  readonly interpolate?: boolean
}

/** Rows that a rate may make. */
const maxRows = 10_000_000

/**
 * Rows of samples at the times of the first series, or at a rate.
 * @throws SparkError ERR_ARGUMENT for a rate that makes too many
 */
export function alignSeries(
  series: readonly Series[],
  options: RowOptions,
): { times: Float64Array; columns: SignalColumn[] } {
  const { from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY, rate } = options
  const sorted = series.map(inOrder)
  const first = sorted[0]!
  const isInside = (time: number): boolean => time >= from && time < to
  const times = rate === undefined ? first.times.filter(isInside) : gridOf(sorted, { ...options, rate })
  const columns = sorted.flatMap((each, i) =>
    each.columns.map(column => {
      const isFirst = i === 0 && rate === undefined
      const values = isFirst
        ? column.values.filter((_, row) => isInside(first.times[row]!))
        : valuesAt(each.times, column, times, options)
      return { ...column, values }
    }),
  )
  columns.sort((a, b) => a.order - b.order)
  return { times, columns: columns.map(({ name, values, texts }) => ({ name, values, texts })) }
}

/** Events are logged by several processes, so that their times may be in disorder. */
function inOrder({ times, columns }: Series): Series {
  if (times.every((time, i) => i === 0 || time >= times[i - 1]!)) return { times, columns }
  const order = Uint32Array.from(times, (_, i) => i).sort((a, b) => times[a]! - times[b]! || a - b)
  const sort = (values: Float64Array): Float64Array => Float64Array.from(order, i => values[i]!)
  return { times: sort(times), columns: columns.map(each => ({ ...each, values: sort(each.values) })) }
}

function gridOf(
  series: readonly Series[],
  { from = 0, to, rate }: RowOptions & { readonly rate: number },
): Float64Array {
  const last = series.reduce((latest, { times }) => Math.max(latest, times.at(-1) ?? latest), from)
  const count = to === undefined ? Math.floor((last - from) * rate) + 1 : Math.ceil((to - from) * rate)
  if (count > maxRows)
    throw new SparkError(
      'ERR_ARGUMENT',
      `options.rate ${rate} makes ${count} rows, ${maxRows} at most: give a smaller one, or from and to`,
    )
  return Float64Array.from({ length: count }, (_, i) => from + i / rate)
}

function valuesAt(
  times: Float64Array,
  { values, isContinuous }: SeriesColumn,
  wanted: Float64Array,
  options: RowOptions,
): Float64Array {
  if (options.interpolate && isContinuous && times.length > 0) return interpolate(times, values, wanted)
  const counts = countsBefore(times, wanted)
  return Float64Array.from(counts, count => values[count - 1] ?? Number.NaN)
}
