// read.ts: `dgx-spark data read`: signals, CAN frames or events of one drive.
import { type Command, InvalidArgumentError } from 'commander'
import { SparkError } from '../../core/errors.js'
import { type Comma2k19Segment, readComma2k19 } from '../../data/route/comma2k19.js'
import { type LogEvents, readLog } from '../../data/route/log.js'
import { logStart } from '../../data/route/log-signals.js'
import { logOf } from '../../data/route/routes.js'
import type { RowOptions } from '../../data/route/signal-series.js'
import { readSignals, type SignalTable } from '../../data/route/signals.js'
import { choice, UsageError, withExamples } from '../command.js'
import { numberFrom, pathFrom, positive } from '../numbers.js'
import { canRows, commaCanRows } from './can.js'
import { reportDamage } from './damage.js'
import { findDrives } from './drives.js'
import { type Cell, jsonLine, type RowFormat, rowFormats, rowLines, writeLines } from './rows.js'

interface ReadOptions extends RowOptions {
  signals?: string[]
  events?: boolean
  log: 'rlog' | 'qlog'
  format?: RowFormat
  output?: string
}

/** `dgx-spark data read`. */
export function addRead(command: Command): void {
  const second = numberFrom(0)
  command
    .description('print signals of a drive, its CAN frames, or its events, by time')
    .argument('<source...>', 'log, folder of a segment or a route, .txt list of paths, or comma2k19 folder')
    .option('--signals <names>', 'such as carState.vEgo,modelV2.position.x.0; can for CAN frames', namesFrom)
    .option('--events', 'print events with all their fields as lines of JSON; --signals names their types')
    .option('--rate <hertz>', 'rows a second (default: a row for each event of the first signal)', positive)
    .option('--interpolate', 'interpolate numbers linearly; otherwise the latest value holds')
    .option('--from <seconds>', 'first time, from the start of the log', second)
    .option('--to <seconds>', 'time to stop before', second)
    .addOption(
      choice('--log <kind>', 'which log, where a segment has both', ['rlog', 'qlog']).default('rlog'),
    )
    .addOption(choice('--format <name>', 'how rows are printed (default: table)', rowFormats))
    .option('--output <file>', 'write to a file instead of stdout', pathFrom)
    .action(read)
  withExamples(
    command,
    'dgx-spark data read drives --signals carState.vEgo,carState.steeringAngleDeg',
    'dgx-spark data read drives --signals carState.vEgo,cameraOdometry.trans --rate 20 --format csv --output drive.csv',
    'dgx-spark data read drives --signals can --to 1',
    'dgx-spark data read drives --events --signals carParams,initData',
  )
}

function namesFrom(text: string): string[] {
  const names = text.split(',').map(name => name.trim())
  if (names.includes('')) throw new InvalidArgumentError('expected names with commas between them')
  return names
}

const canTypes = ['can', 'sendcan']

async function read(sources: string[], options: ReadOptions): Promise<void> {
  const { signals = [], events, from, to } = options
  if (signals.length === 0 && !events) throw new UsageError('give --signals, or --events for all of them')
  if (from !== undefined && to !== undefined && to <= from)
    throw new UsageError(`--to ${to} must be more than --from ${from}`)
  const isCan = !events && signals.some(signal => canTypes.includes(signal))
  if (isCan && signals.length > 1)
    throw new UsageError(`--signals ${signals.join(',')}: CAN frames are printed on their own; give one name`)
  for (const name of ['rate', 'interpolate'] as const)
    if (options[name] !== undefined && (events || isCan))
      throw new UsageError(`--${name} is for signals, not for ${events ? '--events' : signals[0]}`)
  if (events && options.format !== undefined && options.format !== 'jsonl')
    throw new UsageError(`--events prints lines of JSON, not --format ${options.format}`)
  const source = await openSource(sources, options)
  if ('comma2k19' in source) await readComma(source.comma2k19, options, isCan)
  else if (events || isCan) await readEventsOf(source.logs, options, isCan)
  else await printSignals(await readSignals(source.logs, signals, rowsOf(options)), options)
}

type Source = { readonly logs: readonly string[] } | { readonly comma2k19: readonly Comma2k19Segment[] }

/** The one drive that sources name. */
async function openSource(sources: readonly string[], { log }: ReadOptions): Promise<Source> {
  const { routes, comma2k19 } = await findDrives(sources)
  const names = [...routes, ...comma2k19].map(drive => drive.name)
  if (names.length > 1)
    throw new SparkError(
      'ERR_ARGUMENT',
      `${sources.join(' ')} has ${names.length} drives, name one: ${names.join(', ')}`,
    )
  const [route] = routes
  if (route) return { logs: route.segments.map(segment => logOf(segment, log)) }
  const segments: Comma2k19Segment[] = []
  for (const { folder } of comma2k19[0]!.segments) segments.push(await readComma2k19(folder))
  return { comma2k19: segments }
}

const rowsOf = ({ from, to, rate, interpolate }: ReadOptions): RowOptions => ({
  ...(from !== undefined && { from }),
  ...(to !== undefined && { to }),
  ...(rate !== undefined && { rate }),
  ...(interpolate !== undefined && { interpolate }),
})

async function readComma(
  segments: readonly Comma2k19Segment[],
  options: ReadOptions,
  isCan: boolean,
): Promise<void> {
  const { signals = [], format = 'table', output } = options
  if (options.events) throw new UsageError('comma2k19 has no events, but measurements: give --signals')
  if (isCan && signals[0] !== 'can')
    throw new UsageError('comma2k19 has all CAN frames in can: src is 128 or more of those that were sent')
  if (isCan) await writeLines(rowLines(canNames, commaCanRows(segments, options), format), output)
  else await printSignals(await readSignals(segments, signals, rowsOf(options)), options)
}

/** Columns of CAN frames; `src` is the bus, 128 more for frames that were sent. */
const canNames = ['time', 'address', 'src', 'data']

async function readEventsOf(logs: readonly string[], options: ReadOptions, isCan: boolean): Promise<void> {
  const { signals, from, to, format = 'table', output } = options
  const start = (await logStart(logs)) ?? 0n
  const nanoseconds = (seconds: number): bigint => {
    const time = start + BigInt(Math.round(seconds * 1e9))
    return time > 0n ? time : 0n
  }
  const log = readLog(logs, {
    ...(signals && { which: signals.map(signal => signal.split('.')[0]!) }),
    ...(from !== undefined && { from: nanoseconds(from) }),
    ...(to !== undefined && { to: nanoseconds(to) }),
  })
  const lines = isCan ? rowLines(canNames, canRows(log, start), format) : eventLines(log, start)
  await writeLines(lines, output)
  reportDamage(log.damage, log.damaged)
}

async function* eventLines(log: LogEvents, start: bigint): AsyncGenerator<string, void, undefined> {
  for await (const { which, ordinal, logMonoTime, valid, value } of log) {
    const time = Number(logMonoTime - start) / 1e9
    yield jsonLine({ time, which, ordinal, logMonoTime, valid, value })
  }
}

async function printSignals(table: SignalTable, { format = 'table', output }: ReadOptions): Promise<void> {
  const names = ['time', ...table.columns.map(column => column.name)]
  await writeLines(rowLines(names, signalRows(table), format), output)
  reportDamage(table.damage, table.damaged)
}

function* signalRows({ times, columns }: SignalTable): Generator<Cell[], void, undefined> {
  for (let row = 0; row < times.length; row++) {
    const cells = columns.map(({ values, texts }): Cell => {
      const value = values[row]!
      return Number.isNaN(value) ? null : (texts?.[value] ?? value)
    })
    yield [times[row]!, ...cells]
  }
}
