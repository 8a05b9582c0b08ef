// routes.ts: the segments of routes in folders and lists of files.
import { readdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { expectText } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { ioError } from '../../io/atomic-write.js'
import { readText } from '../../io/read-file.js'
import { formatRouteName, parseRouteName, type RouteName } from './names.js'

/** What a file of a segment is. */
export type SegmentFile = 'rlog' | 'qlog' | 'qcamera' | 'fcamera' | 'ecamera' | 'dcamera'

/** A minute of a drive. */
export interface Segment {
  /** `dongle|log--number`, or the name of its folder or file where that says no more. */
  readonly name: string
  /** Which minute of the drive it is. */
  readonly number: number
  /** Paths: rlog has all events, qlog a selection; fcamera is the road, ecamera the wide road, dcamera the driver, in HEVC; qcamera is the road at low resolution. */
  readonly files: Readonly<Partial<Record<SegmentFile, string>>>
}

/** A drive. */
export interface Route {
  /** `dongle|log`, or the name of its folder or file where that says no more. */
  readonly name: string
  /** In their order; each is there once. */
  readonly segments: readonly Segment[]
  /** Numbers of the segments between the first and the last that are missing. */
  readonly missing: readonly number[]
}

/** `rlog.zst`, or as downloads are named, `dongle_log--segment--rlog.zst`. */
const filePattern = /^(?:(.+)--)?(rlog|qlog|qcamera|fcamera|ecamera|dcamera)((?:\.[a-z0-9]+)*)$/i

/** How deep segments may be below a folder: segments/dongle/log/number. */
const maxDepth = 4

interface Found {
  readonly route: string
  readonly number: number
  readonly name: string
  readonly kind: SegmentFile
  readonly file: string
}

/**
 * Finds the segments of one or more routes.
 * @param source - a log; a folder of a segment, a route or several routes; a `.txt` file with a path in each line; or an array of
 * these. Files decide: `rlog`, `qlog` (with any ending), `qcamera.ts`, `fcamera.hevc`, `ecamera.hevc`, `dcamera.hevc`
 * @returns the routes by name
 * @throws SparkError ERR_ARGUMENT, ERR_IO for what cannot be read, ERR_FORMAT when no segments are found
 */
export async function findRoutes(source: string | readonly string[]): Promise<Route[]> {
  const sources = typeof source === 'string' ? [source] : source
  if (sources.length === 0) throw new SparkError('ERR_ARGUMENT', 'source must name a file or folder, got []')
  const found: Found[] = []
  for (const each of sources) {
    expectText('source', each)
    found.push(...(await findIn(each)))
  }
  if (found.length > 0) return routesOf(found)
  const expected = 'logs (rlog, qlog) or videos (qcamera.ts, fcamera.hevc) of openpilot'
  throw new SparkError(
    'ERR_FORMAT',
    `${sources.join(', ')}: no segments of a route are there; expected ${expected}`,
  )
}

async function findIn(source: string): Promise<Found[]> {
  const target = path.resolve(source)
  const about = await stat(target).catch(error => {
    throw ioError('read', source, error)
  })
  if (about.isDirectory()) return findBelow(target, 0)
  if (!target.endsWith('.txt')) return [fileOf(target, true)!]
  const lines = (await readText(target)).split('\n').map(line => line.trim())
  const paths = lines.filter(line => line !== '' && !line.startsWith('#'))
  const all: Found[] = []
  for (const line of paths) all.push(...(await findIn(path.resolve(path.dirname(target), line))))
  return all
}

async function findBelow(folder: string, depth: number): Promise<Found[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(error => {
    throw ioError('read', folder, error)
  })
  const all: Found[] = []
  for (const entry of entries) {
    const inner = path.join(folder, entry.name)
    if (entry.isDirectory() && depth < maxDepth) all.push(...(await findBelow(inner, depth + 1)))
    const file = entry.isFile() || entry.isSymbolicLink() ? fileOf(inner, false) : undefined
    if (file) all.push(file)
  }
  return all
}

/** What a file is. One that is named is a log, however it is named. */
function fileOf(file: string, isNamed: boolean): Found | undefined {
  const [, prefix, kind] = filePattern.exec(path.basename(file)) ?? []
  if (kind === undefined && !isNamed) return undefined
  const id = prefix === undefined ? folderName(path.dirname(file)) : parseRouteName(prefix)
  const rest = kind === undefined ? path.basename(file) : path.basename(path.dirname(file))
  const name = id && id.segment !== null ? formatRouteName(id) : rest
  return {
    route: id ? formatRouteName({ ...id, segment: null }) : rest,
    number: id?.segment ?? 0,
    name,
    kind: (kind?.toLowerCase() ?? 'rlog') as SegmentFile,
    file,
  }
}

/** The name that the last folders of a path make, the longest first: dongle/log/segment, log/segment, log--segment. */
function folderName(folder: string): RouteName | undefined {
  const parts = folder.split(path.sep)
  for (const count of [3, 2, 1]) {
    const name = parseRouteName(parts.slice(-count).join('/'))
    if (name && name.segment !== null) return name
  }
  return undefined
}

function routesOf(found: readonly Found[]): Route[] {
  const routes = new Map<string, Map<number, { name: string; files: Partial<Record<SegmentFile, string>> }>>()
  for (const { route, number, name, kind, file } of found) {
    const segments = routes.get(route) ?? new Map()
    routes.set(route, segments)
    const segment = segments.get(number) ?? { name, files: {} }
    segments.set(number, segment)
    const other = segment.files[kind]
    if (other !== undefined && other !== file && !isSameLog(other, file))
      throw new SparkError(
        'ERR_FORMAT',
        `${other} and ${file} are both ${kind} of segment ${name}: give one of them`,
      )
    if (other === undefined || rank(file) < rank(other)) segment.files[kind] = file
  }
  return [...routes]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, segments]) => {
      const numbers = [...segments.keys()].sort((a, b) => a - b)
      const [first = 0, last = 0] = [numbers[0], numbers.at(-1)]
      const missing: number[] = []
      for (let number = first; number <= last; number++) if (!segments.has(number)) missing.push(number)
      return { name, segments: numbers.map(number => ({ number, ...segments.get(number)! })), missing }
    })
}

/** One log may lie there twice, compressed in two ways. */
const isSameLog = (a: string, b: string): boolean =>
  path.dirname(a) === path.dirname(b) && rank(a) !== rank(b)
const rank = (file: string): number => ['.zst', '.bz2'].indexOf(path.extname(file))

/**
 * The log of a segment: its rlog or, where there is none or it is asked for, its qlog.
 * @throws SparkError ERR_FORMAT when it has none
 */
export function logOf({ name, files }: Segment, prefer: 'rlog' | 'qlog' = 'rlog'): string {
  const other = prefer === 'rlog' ? 'qlog' : 'rlog'
  const log = files[prefer] ?? files[other]
  if (log === undefined)
    throw new SparkError(
      'ERR_FORMAT',
      `segment ${name} has no log (rlog, qlog), but ${Object.keys(files).join(', ')}`,
    )
  return log
}
