// log-signals.ts: samples of the signals of logs.
import { SparkError } from '../../core/errors.js'
import { type LogEvents, readLog } from './log.js'
import { parseSignal, type SignalPath, sampleAt } from './signal-path.js'
import { Collector, type Series } from './signal-series.js'

/** Events that are looked at for the start of a log: they are in disorder for less than a second. */
const startEvents = 1000

/**
 * The `logMonoTime` that times of a log count from: the earliest of its first 1000 events. initData does not count: later segments
 * repeat that of the first.
 * @returns null of a log without events
 */
export async function logStart(files: readonly string[]): Promise<bigint | null> {
  let [start, count] = [null as bigint | null, 0]
  for await (const { which, logMonoTime } of readLog(files)) {
    if (which !== 'initData' && (start === null || logMonoTime < start)) start = logMonoTime
    if (++count === startEvents && start !== null) break
  }
  return start
}

/** Signals of one type of events. */
interface Group {
  readonly type: string
  readonly ordinals: readonly number[]
  readonly paths: SignalPath[]
  readonly collectors: Collector[]
  readonly times: number[]
}

/**
 * The samples of signals, a series for each type of events in the order of the first signals.
 * @param start - the time that counts as 0, in nanoseconds
 * @param to - stop before this time, in seconds
 * @throws SparkError ERR_ARGUMENT for unknown signals, ERR_FORMAT for events that the log does not have
 */
export async function logSeries(
  files: readonly string[],
  signals: readonly string[],
  start: bigint,
  to = Number.POSITIVE_INFINITY,
): Promise<{ series: Series[]; log: LogEvents }> {
  const groups = await groupsOf(signals)
  const byOrdinal = new Map(groups.flatMap(group => group.ordinals.map(ordinal => [ordinal, group] as const)))
  const log = readLog(files)
  const seen = new Map<number, string>()
  for await (const event of log) {
    seen.set(event.ordinal, event.which)
    const seconds = Number(event.logMonoTime - start) / 1e9
    const group = byOrdinal.get(event.ordinal)
    if (!group || seconds >= to) continue
    group.times.push(seconds)
    group.paths.forEach((path, i) => {
      group.collectors[i]!.add(sampleAt(event.value, path))
    })
  }
  const missing = groups.find(({ ordinals }) => !ordinals.some(ordinal => seen.has(ordinal)))
  if (missing) {
    const others = [...seen.values()].sort().join(', ') || 'no events at all'
    throw new SparkError(
      'ERR_FORMAT',
      `${files.join(', ')}: no events of ${missing.type}; there are ${others}`,
    )
  }
  return {
    series: groups.map(({ times, collectors }) => ({
      times: Float64Array.from(times),
      columns: collectors.flatMap(each => each.columns()),
    })),
    log,
  }
}

/** Signals by the types of their events. */
async function groupsOf(signals: readonly string[]): Promise<Group[]> {
  const { isRead, ordinalsOf } = await import('./event-types.js')
  const groups = new Map<string, Group>()
  signals.map(parseSignal).forEach((path, order) => {
    const ordinals = ordinalsOf(path.type)
    if (!ordinals.some(isRead))
      throw new SparkError('ERR_UNSUPPORTED', `signal ${path.name}: fields of ${path.type} are not read`)
    const key = ordinals.join()
    const group = groups.get(key) ?? { type: path.type, ordinals, paths: [], collectors: [], times: [] }
    groups.set(key, group)
    group.paths.push(path)
    group.collectors.push(new Collector(path, order))
  })
  return [...groups.values()]
}
