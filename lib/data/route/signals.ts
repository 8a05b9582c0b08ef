// signals.ts: chosen signals of a drive as columns of numbers.
import {
  argumentError,
  expectBoolean,
  expectKnownOptions,
  expectNumber,
  expectText,
} from '../../core/checks.js'
import type { Comma2k19Segment } from './comma2k19.js'
import type { LogDamage } from './damage.js'
import { logOf, type Route, type Segment } from './routes.js'
import type { RowOptions, Series, SignalColumn } from './signal-series.js'

/** A log, the logs of a route in their order, a route, a segment, or segments of comma2k19. */
export type SignalSource =
  | string
  | readonly string[]
  | Route
  | Segment
  | Comma2k19Segment
  | readonly Comma2k19Segment[]

/** Signals at common times. */
export interface SignalTable {
  /** Seconds since `start`, [rows]. */
  readonly times: Float64Array
  /** In the order of the signals. */
  readonly columns: readonly SignalColumn[]
  /** What times count from, in nanoseconds since boot: the earliest of the first 1000 events but for initData. */
  readonly start: bigint
  /** Damaged parts of the logs that were left out: the first 1000. */
  readonly damage: readonly LogDamage[]
  /** Number of all damaged parts. */
  readonly damaged: number
}

/**
 * Reads signals of a drive. Without a rate there is a row for each event of the type of the first signal, with the latest values of
 * the others; with one, rows are evenly apart.
 * @param source - what is read
 * @param signals - of logs: the type of events, a dot and the path of a field, such as `carState.vEgo`, `carState.wheelSpeeds.fl`,
 * `modelV2.position.x.0`; a list becomes a column for each of its values. Of comma2k19: `speed`, `CAN/wheel_speed.0`, `velocities`
 * @throws SparkError ERR_ARGUMENT, also for unknown signals and for those that are no values; ERR_UNSUPPORTED for events whose
 * fields are not read; ERR_FORMAT for events that the log does not have; ERR_IO
 * @example
 * const [route] = await findRoutes('2023-07-27--13-01-19')
 * const { times, columns } = await readSignals(route, ['carState.vEgo', 'carState.steeringAngleDeg'], { rate: 20 })
 * console.log(times.length, columns[0].values)
 */
export async function readSignals(
  source: SignalSource,
  signals: readonly string[],
  options: RowOptions = {},
): Promise<SignalTable> {
  if (!Array.isArray(signals) || signals.length === 0)
    throw argumentError('signals', 'an array of names of signals', signals)
  for (const signal of signals) expectText('signals', signal)
  expectRows(options)
  // Numbers between two samples need that behind the last time.
  const to = options.interpolate ? undefined : options.to
  const { series, ...rest } = await seriesOf(source, signals, to)
  const { alignSeries } = await import('./signal-series.js')
  return { ...alignSeries(series, options), ...rest }
}

function expectRows(options: RowOptions): void {
  expectKnownOptions('options', options, ['from', 'to', 'rate', 'interpolate'])
  const { from, to, rate, interpolate } = options
  if (from !== undefined) expectNumber('options.from', from)
  if (to !== undefined) expectNumber('options.to', to)
  if (from !== undefined && to !== undefined && to <= from)
    throw argumentError('options.to', `more than options.from, ${from}`, to)
  if (rate !== undefined) expectNumber('options.rate', rate, 1e-6, 1e6)
  if (interpolate !== undefined) expectBoolean('options.interpolate', interpolate)
}

type Read = Omit<SignalTable, 'times' | 'columns'> & { readonly series: readonly Series[] }

async function seriesOf(source: SignalSource, signals: readonly string[], to?: number): Promise<Read> {
  const segments = commaSegments(source)
  if (segments) {
    const { commaSeries, commaStart } = await import('./comma-signals.js')
    const start = commaStart(segments)
    const nanoseconds = BigInt(Math.round(start * 1e9))
    return { series: commaSeries(segments, signals, start), start: nanoseconds, damage: [], damaged: 0 }
  }
  const { logSeries, logStart } = await import('./log-signals.js')
  const files = logsOf(source as Exclude<SignalSource, Comma2k19Segment | readonly Comma2k19Segment[]>)
  const start = (await logStart(files)) ?? 0n
  const { series, log } = await logSeries(files, signals, start, to)
  return { series, start, damage: log.damage, damaged: log.damaged }
}

function commaSegments(source: SignalSource): readonly Comma2k19Segment[] | undefined {
  const list = Array.isArray(source) ? source : [source]
  const isComma = (each: unknown): boolean =>
    each !== null && typeof each === 'object' && 'measurements' in each
  return list.length > 0 && list.every(isComma) ? (list as Comma2k19Segment[]) : undefined
}

function logsOf(source: string | readonly string[] | Route | Segment): readonly string[] {
  if (typeof source === 'string') return [source]
  if (Array.isArray(source) && source.length > 0) return source as readonly string[]
  if (source !== null && typeof source === 'object') {
    if ('segments' in source) return source.segments.map(segment => logOf(segment))
    if ('files' in source) return [logOf(source)]
  }
  throw argumentError('source', 'a path, paths, a route, a segment or segments of comma2k19', source)
}
