// log.ts: the logs of openpilot (rlog, qlog) as users see them.
import { argumentError, expectKnownOptions, expectText } from '../../core/checks.js'
import type { LogDamage } from './damage.js'
import type { EventName } from './event-types.js'
import type { EventFilter, LogEvent } from './log-event.js'

/** What a log holds. */
export interface LogSummary {
  /** Number of events. */
  readonly events: number
  /** Number of events by type, most frequent first. */
  readonly counts: Readonly<Record<string, number>>
  /** `logMonoTime` of the earliest event, in nanoseconds; null of a log without events. */
  readonly start: bigint | null
  /** `logMonoTime` of the latest event, in nanoseconds; null of a log without events. */
  readonly end: bigint | null
  /** Damaged parts that were left out: the first 1000. */
  readonly damage: readonly LogDamage[]
  /** Number of all damaged parts. */
  readonly damaged: number
}

const maxDamage = 1000

/**
 * The events of a log, in the order of the file; read as they are asked for. What is damaged is left out.
 * @example
 * const events = readLog('qlog.zst', { which: ['carState'] })
 * for await (const { logMonoTime, value } of events) console.log(logMonoTime, value?.vEgo)
 * if (events.damaged > 0) console.log(events.damage)
 */
export class LogEvents<N extends EventName = EventName> implements AsyncIterable<LogEvent<N>> {
  /** Damaged parts that have been met: the first 1000. */
  readonly damage: LogDamage[] = []
  /** Number of all damaged parts that have been met. */
  damaged = 0
  readonly #files: readonly string[]
  readonly #filter: EventFilter

  /** @internal */
  constructor(files: readonly string[], filter: EventFilter) {
    this.#files = files
    this.#filter = filter
  }

  /** Reads the log from its start. */
  async *[Symbol.asyncIterator](): AsyncGenerator<LogEvent<N>, void, undefined> {
    const { readEvents } = await import('./read-events.js')
    this.damage.length = 0
    this.damaged = 0
    for (const file of this.#files) {
      yield* readEvents(file, this.#filter, damage => {
        if (this.damaged++ < maxDamage) this.damage.push(damage)
      }) as AsyncGenerator<LogEvent<N>, void, undefined>
    }
  }
}

/**
 * Reads a log of openpilot: rlog or qlog, compressed with Zstandard or bzip2, or not. Memory does not grow with its size.
 * @param file - path, or paths of the segments of a route, which are read one after another; the first bytes of a file decide how it
 * is read, not its name
 * @param filter - which events
 * @throws SparkError ERR_ARGUMENT. The iterator throws ERR_ARGUMENT for an unknown type of events, ERR_IO when the file cannot be
 * read, and ERR_FORMAT when it is no log, or one that is made to fill the memory
 */
export function readLog<const N extends EventName = EventName>(
  file: string | readonly string[],
  filter: EventFilter<N> = {},
): LogEvents<N> {
  const files = typeof file === 'string' ? [file] : file
  for (const each of files) expectText('file', each)
  expectKnownOptions('filter', filter, ['which', 'from', 'to'])
  const { which, from, to } = filter
  if (which !== undefined && !Array.isArray(which)) throw argumentError('which', 'an array of names', which)
  for (const [name, time] of Object.entries({ from, to })) {
    if (time !== undefined && typeof time !== 'bigint')
      throw argumentError(name, 'a bigint of nanoseconds', time)
  }
  return new LogEvents(files, filter)
}

/**
 * Counts the events of a log.
 * @throws SparkError as {@link readLog}
 */
export async function summarizeLog(file: string | readonly string[]): Promise<LogSummary> {
  const log = readLog(file)
  const counts = new Map<string, number>()
  let [events, start, end] = [0, null as bigint | null, null as bigint | null]
  for await (const { which, logMonoTime } of log) {
    events++
    counts.set(which, (counts.get(which) ?? 0) + 1)
    if (start === null || logMonoTime < start) start = logMonoTime
    if (end === null || logMonoTime > end) end = logMonoTime
  }
  const sorted = [...counts].sort(([, a], [, b]) => b - a)
  const { damage, damaged } = log
  return { events, counts: Object.fromEntries(sorted), start, end, damage, damaged }
}
