// inspect-route.ts: `dgx-spark inspect-route`: what a segment of a drive holds, as a table or a page.
import path from 'node:path'
import type { Command } from 'commander'
import { SparkError } from '../core/errors.js'
import { findRoutes, logOf, type Route, type Segment } from '../data/route/routes.js'
import { writeFileAtomic } from '../io/atomic-write.js'
import { withExamples } from './command.js'
import { integerFrom, pathFrom, positive } from './numbers.js'
import { formatBytes, print, printJson, printPairs, styled } from './output.js'
import { type Drive, readDrive } from './route-page/drive.js'
import type { Pictures } from './route-page/frames.js'
import type { Range } from './route-page/samples.js'
import { printTable } from './table.js'

interface Flags {
  segment?: number
  html?: string
  every: number
  json?: boolean
}

/** `dgx-spark inspect-route`: events, speed, steering and calibration of a segment; a page with its frames. */
export function addInspectRoute(command: Command): void {
  command
    .argument('<source>', 'folder of a route or segment, or a log (rlog, qlog)')
    .option('--segment <number>', 'which segment (default: the first)', integerFrom(0))
    .option('--html <file>', 'write a page: frames with plan and lanes, plots', pathFrom)
    .option('--every <seconds>', 'time from one frame of the page to the next', positive, 2)
    .option('--json', 'print one JSON document')
    .action(run)
  withExamples(
    command,
    'dgx-spark inspect-route 2023-07-27--13-01-19--0',
    'dgx-spark inspect-route drives --segment 3 --html drive.html',
    'dgx-spark inspect-route qlog.zst --json',
  )
}

async function run(source: string, { segment: number, html, every, json }: Flags): Promise<void> {
  const route = onlyRoute(await findRoutes(source), source)
  const segment = segmentOf(route, number)
  const log = logOf(segment)
  const drive = await readDrive(log)
  const facts = summary(route, segment, log, drive)
  const page = html === undefined ? undefined : await writePage(html, segment, log, drive, every, facts)
  if (json) {
    printJson({ ...report(route, segment, log, drive), ...(page && { page }) })
    return
  }
  print(styled('bold', segment.name))
  printPairs(facts)
  const counts = [...drive.counts].sort(([, a], [, b]) => b - a)
  printTable(
    ['event', 'count'],
    counts.map(([name, count]) => [name, String(count)]),
    [1],
  )
  if (!page) return
  print(
    page.why === null
      ? `${page.frames} frames, ${page.models} with what the model saw`
      : `no frames: ${page.why}`,
  )
  print(`wrote ${html} (${formatBytes(page.bytes)})`)
}

/** @throws SparkError ERR_ARGUMENT when there are several */
function onlyRoute(routes: readonly Route[], source: string): Route {
  if (routes.length === 1) return routes[0]!
  const names = routes.slice(0, 5).map(({ name }) => name)
  const more = routes.length > names.length ? ` and ${routes.length - names.length} more` : ''
  throw new SparkError(
    'ERR_ARGUMENT',
    `${source} holds ${routes.length} routes (${names.join(', ')}${more}): give the folder of one of them`,
  )
}

/** @throws SparkError ERR_ARGUMENT when it is not there */
function segmentOf({ name, segments }: Route, number: number | undefined): Segment {
  const segment = number === undefined ? segments[0] : segments.find(each => each.number === number)
  if (segment) return segment
  throw new SparkError(
    'ERR_ARGUMENT',
    `--segment ${number}: route ${name} has no such segment, but ${numbersOf(segments)}`,
  )
}

/** Numbers of segments: 0, 2–5. */
function numbersOf(segments: readonly Segment[]): string {
  const runs: [number, number][] = []
  for (const { number } of segments) {
    const last = runs.at(-1)
    if (last && last[1] === number - 1) last[1] = number
    else runs.push([number, number])
  }
  return runs.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(', ')
}

async function writePage(
  file: string,
  segment: Segment,
  log: string,
  drive: Drive,
  every: number,
  facts: readonly (readonly [string, string])[],
): Promise<{ frames: number; models: number; bytes: number; video: Pictures['video']; why: string | null }> {
  const { readPictures } = await import('./route-page/frames.js')
  const { routePage } = await import('./route-page/page.js')
  const pictures = await readPictures(segment, log, drive, every)
  const page = Buffer.from(routePage({ title: segment.name, facts }, drive, pictures))
  await writeFileAtomic(path.resolve(file), [page])
  const { frames, video, why } = pictures
  const models = frames.filter(({ overlay }) => overlay !== null).length
  return { frames: frames.length, models, bytes: page.length, video, why }
}

const secondsOf = ({ start, end }: Drive): number | null =>
  start === null || end === null ? null : Number(end - start) / 1e9

const shareOf = (range: Range | null | undefined): number | null => range?.mean ?? null

/** The JSON document. */
const report = (route: Route, segment: Segment, log: string, drive: Drive) => ({
  route: route.name,
  segment: segment.number,
  segments: route.segments.map(({ number }) => number),
  missing: route.missing,
  log,
  files: Object.keys(segment.files).sort(),
  seconds: secondsOf(drive),
  events: drive.events,
  damaged: drive.damaged,
  counts: Object.fromEntries([...drive.counts].sort(([, a], [, b]) => b - a)),
  speed: drive.car.range('speed'),
  steeringAngle: drive.car.range('angle'),
  steeringPressed: shareOf(drive.car.range('pressed')),
  engaged: shareOf(drive.engaged?.samples.range('enabled')),
  calibration: drive.calibration,
})

const percent = (share: number | null, without: string): string =>
  share === null ? without : `${(100 * share).toFixed(1)} % of the time`

function between(range: Range | null, unit: string, digits: number, factor = 1): string {
  if (!range) return 'not in the log'
  const [min, max, mean] = [range.min, range.max, range.mean].map(value => (factor * value).toFixed(digits))
  return `${min} to ${max} ${unit}, on average ${mean} ${unit}`
}

/** With two decimals, and never -0.00. */
const hundredths = (value: number): string => (Math.round(100 * value) / 100 + 0).toFixed(2)

function describeCalibration({ calibration }: Drive): string {
  if (!calibration) return 'not in the log'
  const angles = calibration.rpy.map(angle => `${hundredths((180 * angle) / Math.PI)}°`).join(', ')
  const height = calibration.height === null ? '' : `, ${calibration.height.toFixed(2)} m above the road`
  return `${calibration.status}: roll, pitch, yaw ${angles}${height}`
}

/** What a person wants to know first, as names and values. */
function summary(route: Route, segment: Segment, log: string, drive: Drive): (readonly [string, string])[] {
  const { car, engaged } = drive
  const seconds = secondsOf(drive)
  const files = Object.keys(segment.files).sort().join(', ')
  return [
    ['route', route.name],
    ['segment', `${segment.number} (there: ${numbersOf(route.segments)})`],
    ['files', files],
    ['read', path.basename(log)],
    ['duration', seconds === null ? 'no events' : `${seconds.toFixed(1)} s`],
    ['events', `${drive.events} of ${drive.counts.size} types`],
    ...(drive.damaged > 0 ? [['damaged', `${drive.damaged} parts were left out`] as const] : []),
    ['speed', between(car.range('speed'), 'm/s', 1)],
    ['', between(car.range('speed'), 'km/h', 0, 3.6)],
    ['steering', between(car.range('angle'), '°', 1)],
    [
      'driver',
      `turns the wheel ${percent(shareOf(car.range('pressed')), 'at times that are not in the log')}`,
    ],
    [
      'engaged',
      engaged
        ? `${percent(shareOf(engaged.samples.range('enabled')), '')} (${engaged.source})`
        : 'not in the log',
    ],
    ['calibration', describeCalibration(drive)],
  ]
}
