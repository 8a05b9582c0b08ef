// download.ts: `dgx-spark data download`: segments of openpilot's tests, of comma_car_segments, of a server; any file.
import { type Command, InvalidArgumentError } from 'commander'
import { didYouMean } from '../../core/did-you-mean.js'
import { SparkError } from '../../core/errors.js'
import { parseRouteName } from '../../data/route/names.js'
import {
  carSegmentsBase,
  ciBase,
  parseSegmentList,
  type RemoteName,
  remoteName,
  segmentFile,
  segmentsOfPlatform,
} from '../../data/route/remote.js'
import { below } from '../../hub/address.js'
import { download as downloadBytes } from '../../hub/download-bytes.js'
import { readText } from '../../io/read-file.js'
import { UsageError, withExamples } from '../command.js'
import { integerFrom, pathFrom } from '../numbers.js'
import { DownloadRun, type Outcome } from './download-run.js'

interface DownloadOptions {
  output: string
  list?: string
  files?: string[]
  platform?: string
  count?: number
  baseUrl?: URL
  sha256?: string
  json?: boolean
}

/** `dgx-spark data download`. */
export function addDownload(command: Command): void {
  command
    .description('download drives, or any file; what was interrupted goes on where it was')
    .argument('<what>', 'ci, comma_car_segments, a route with --base-url, or an http: or https: URL')
    .requiredOption('-o, --output <folder>', 'folder to write to', pathFrom)
    .option('--list <file|url>', 'segments of ci, one in each line: dongle|log--segment', pathFrom)
    .option('--files <names>', 'files of each segment (default: rlog.zst,qcamera.ts)', filesFrom)
    .option('--platform <name>', 'car of comma_car_segments, such as TOYOTA_COROLLA_TSS2')
    .option('--count <number>', 'segments of comma_car_segments (default: 1)', integerFrom(1))
    .option('--base-url <url>', 'what {dongle}/{log}/{segment}/{file} is below', urlFrom)
    .option('--sha256 <digits>', 'SHA-256 of the file of a URL', digitsFrom)
    .option('--json', 'print one JSON document')
    .action(download)
  withExamples(
    command,
    'dgx-spark data download ci --list segments.txt --files qlog.zst,qcamera.ts --output drives',
    'dgx-spark data download comma_car_segments --platform TOYOTA_COROLLA_TSS2 --count 10 --output drives',
    'dgx-spark data download https://example.com/model.onnx --output models',
  )
}

function filesFrom(text: string): string[] {
  const names = text.split(',').map(name => name.trim())
  const isFile = (name: string): boolean => /^[\w-][\w.-]*$/.test(name)
  if (names.every(isFile)) return names
  throw new InvalidArgumentError('expected names of files with commas between them')
}

function urlFrom(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url && /^https?:$/.test(url.protocol)) return url
  throw new InvalidArgumentError('expected an http: or https: URL')
}

function digitsFrom(text: string): string {
  if (/^[0-9a-f]{64}$/i.test(text)) return text
  throw new InvalidArgumentError('expected 64 hexadecimal digits')
}

/** Options of each kind of data. */
const known = {
  ci: ['list', 'files', 'baseUrl'],
  comma_car_segments: ['platform', 'count', 'files', 'baseUrl'],
  route: ['files', 'baseUrl'],
  url: ['sha256'],
} as const

const flags = {
  list: '--list',
  files: '--files',
  platform: '--platform',
  count: '--count',
  baseUrl: '--base-url',
  sha256: '--sha256',
} as const

function kindOf(what: string): keyof typeof known {
  if (what === 'ci' || what === 'comma_car_segments') return what
  if (parseRouteName(what)) return 'route'
  if (/^https?:\/\//i.test(what) && URL.canParse(what)) return 'url'
  const hint = didYouMean(what, ['ci', 'comma_car_segments'])
  throw new UsageError(
    `${what}: expected ci, comma_car_segments, a route such as dongle|log, or a URL${hint}`,
  )
}

async function download(what: string, options: DownloadOptions): Promise<void> {
  const kind = kindOf(what)
  for (const [name, flag] of Object.entries(flags))
    if (
      options[name as keyof typeof flags] !== undefined &&
      !(known[kind] as readonly string[]).includes(name)
    )
      throw new UsageError(
        `${flag} is not for ${kind === 'url' ? 'a URL' : kind === 'route' ? 'a route' : kind}`,
      )
  const { output, baseUrl, files = ['rlog.zst', 'qcamera.ts'] } = options
  const run = new DownloadRun(output)
  const work: Record<typeof kind, () => Promise<void>> = {
    ci: () => fetchList(run, { ...options, files }),
    comma_car_segments: () => fetchPlatform(run, options),
    route: () => fetchSegments(run, [remoteName(what, 'the route')], files, baseUrl!),
    url: () => fetchUrl(run, new URL(what), options),
  }
  if (kind === 'ci' && options.list === undefined)
    throw new UsageError('ci needs --list: a file or URL with a segment in each line, dongle|log--segment')
  if (kind === 'comma_car_segments' && options.platform === undefined)
    throw new UsageError('comma_car_segments needs --platform, such as TOYOTA_COROLLA_TSS2')
  if (kind === 'route' && baseUrl === undefined)
    throw new UsageError('a route needs --base-url: what {dongle}/{log}/{segment}/{file} is below')
  await run.run(work[kind], options.json === true)
}

/** Bytes of a list of segments. */
const maxList = 1 << 26

async function fetchList(
  run: DownloadRun,
  { list = '', files, baseUrl = ciBase }: DownloadOptions & { files: string[] },
): Promise<void> {
  const isUrl = /^https?:\/\//i.test(list) && URL.canParse(list)
  const { signal } = run
  const text = isUrl
    ? new TextDecoder().decode(await downloadBytes(new URL(list), { signal, maxBytes: maxList }))
    : await readText(list)
  await fetchSegments(run, parseSegmentList(text, isUrl ? 'the list' : list), files, baseUrl)
}

async function fetchPlatform(
  run: DownloadRun,
  { platform = '', count = 1, files = ['rlog.zst'], baseUrl = carSegmentsBase }: DownloadOptions,
): Promise<void> {
  const name = 'database.json'
  const database = await run.fetch([{ name, url: below(baseUrl, name) }])
  if (typeof database === 'string') return
  const { file } = database
  const names = segmentsOfPlatform(await readText(file), platform, file)
  await fetchSegments(run, names.slice(0, count), files, below(baseUrl, 'segments'))
}

/** The files of segments; of routes those of their segments, from 0 on until one has none. */
async function fetchSegments(
  run: DownloadRun,
  names: readonly RemoteName[],
  files: readonly string[],
  base: URL,
): Promise<void> {
  const fetchOne = async (name: RemoteName, segment: number): Promise<Outcome[]> => {
    const outcomes: Outcome[] = []
    for (const file of files) outcomes.push(await run.fetch(segmentFile({ ...name, segment }, file, base)))
    return outcomes
  }
  for (const name of names) {
    if (name.segment !== null) {
      await fetchOne(name, name.segment)
      continue
    }
    let segment = 0
    while ((await fetchOne(name, segment)).some(outcome => outcome !== 'missing')) segment++
    if (segment > 0) run.forget(files.length)
  }
}

async function fetchUrl(run: DownloadRun, url: URL, { sha256 }: DownloadOptions): Promise<void> {
  const name = url.pathname.split('/').at(-1) ?? ''
  if (name === '')
    throw new SparkError('ERR_ARGUMENT', `${url.origin}${url.pathname} must end with the name of a file`)
  await run.fetch([{ name, url }], sha256 === undefined ? {} : { sha256 })
}
