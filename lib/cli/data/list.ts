// list.ts: `dgx-spark data list`: routes and segments that are there.
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import type { Command } from 'commander'
import { readComma2k19 } from '../../data/route/comma2k19.js'
import { type LogSummary, summarizeLog } from '../../data/route/log.js'
import { logOf, type Route, type Segment } from '../../data/route/routes.js'
import { videosOf } from '../../data/route/videos.js'
import { withExamples } from '../command.js'
import { print, printJson, styled } from '../output.js'
import { printTable } from '../table.js'
import { reportDamage } from './damage.js'
import { type CommaDrive, findDrives } from './drives.js'

interface ListOptions {
  events?: boolean
  json?: boolean
}

/** One drive of the list. */
interface Listed {
  readonly name: string
  readonly kind: 'openpilot' | 'comma2k19'
  /** Minutes that have segments. */
  readonly minutes: number
  readonly missing: readonly number[]
  /** Files that its segments have, and how many of them. */
  readonly files: Readonly<Record<string, number>>
  readonly videos: readonly string[]
  readonly segments: readonly {
    readonly name: string
    readonly number: number
    readonly files: Readonly<Record<string, string>>
  }[]
  /** Numbers of events by type, most frequent first. */
  readonly events?: Readonly<Record<string, number>>
  readonly damaged?: number
}

/** `dgx-spark data list`. */
export function addList(command: Command): void {
  command
    .description('list the routes and segments in folders: minutes, files, missing segments, videos')
    .argument(
      '<source...>',
      'log, folder of a segment, a route or several, .txt list of paths, or comma2k19 folder',
    )
    .option('--events', 'count the events of the logs, by type')
    .option('--json', 'print one JSON document')
    .action(list)
  withExamples(command, 'dgx-spark data list drives', 'dgx-spark data list drives --events --json')
}

async function list(sources: string[], options: ListOptions): Promise<void> {
  const { routes, comma2k19 } = await findDrives(sources)
  const drives: Listed[] = []
  for (const route of routes) drives.push(await listRoute(route, options))
  for (const drive of comma2k19) drives.push(await listComma(drive, options))
  if (options.json) {
    printJson(drives)
    return
  }
  printTable(
    ['route', 'minutes', 'missing', 'files', 'video'],
    drives.map(({ name, kind, minutes, missing, files, videos }) => [
      name,
      String(minutes),
      ranges(missing),
      Object.entries(files)
        .map(([file, count]) => (count === minutes ? file : `${file} (${count})`))
        .join(', '),
      videos.join(', ') || (kind === 'openpilot' ? 'none: logs only' : 'none'),
    ]),
    [1],
  )
  for (const { name, events } of drives.filter(drive => drive.events)) {
    print(styled('bold', `events of ${name}`))
    printTable(
      ['type', 'events'],
      Object.entries(events!).map(([type, count]) => [type, count.toLocaleString('en')]),
      [1],
    )
  }
}

/** `3, 5-9`. */
function ranges(numbers: readonly number[]): string {
  const parts: [number, number][] = []
  for (const number of numbers) {
    const last = parts.at(-1)
    if (last && last[1] === number - 1) last[1] = number
    else parts.push([number, number])
  }
  return parts.map(([first, last]) => (first === last ? String(first) : `${first}-${last}`)).join(', ')
}

/** Names of files and how many segments have them. */
function countFiles(segments: Listed['segments']): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const { files } of segments)
    for (const file of Object.values(files)) {
      const name = path.basename(file).replace(/^.*--(?=[a-z])/i, '')
      counts[name] = (counts[name] ?? 0) + 1
    }
  return counts
}

async function listRoute({ name, segments, missing }: Route, options: ListOptions): Promise<Listed> {
  return {
    name,
    kind: 'openpilot',
    minutes: segments.length,
    missing,
    files: countFiles(segments),
    videos: [...new Set(segments.flatMap(videosOf))],
    segments,
    ...(options.events && (await countEvents(segments))),
  }
}

async function countEvents(segments: readonly Segment[]): Promise<Pick<Listed, 'events' | 'damaged'>> {
  const hasLog = segments.filter(({ files }) => files.rlog !== undefined || files.qlog !== undefined)
  if (hasLog.length === 0) return {}
  const { counts, damaged, damage }: LogSummary = await summarizeLog(hasLog.map(segment => logOf(segment)))
  reportDamage(damage, damaged)
  return { events: counts, damaged }
}

async function listComma({ name, segments }: CommaDrive, options: ListOptions): Promise<Listed> {
  const listed = await Promise.all(
    segments.map(async ({ folder, ...segment }) => {
      const entries = (await readdir(folder))
        .filter(entry => !/^(LICENSE|preview\.png|\.)/.test(entry))
        .sort()
      return {
        ...segment,
        files: Object.fromEntries(entries.map(entry => [entry, path.join(folder, entry)])),
      }
    }),
  )
  const files = countFiles(listed)
  const events: Record<string, number> = {}
  for (const { folder } of options.events ? segments : []) {
    const { poses, can, measurements } = await readComma2k19(folder)
    const counts = { poses, can, ...Object.fromEntries(measurements) }
    for (const [type, { times }] of Object.entries(counts)) events[type] = (events[type] ?? 0) + times.length
  }
  return {
    name,
    kind: 'comma2k19',
    minutes: segments.length,
    missing: [],
    files,
    videos: Object.keys(files).filter(file => file === 'video.hevc'),
    segments: listed,
    ...(options.events && { events }),
  }
}
