// remote.ts: files of segments on servers: their addresses, lists of segments, downloads.
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { didYouMean } from '../../core/did-you-mean.js'
import { SparkError } from '../../core/errors.js'
import { below } from '../../hub/address.js'
import { type DownloadFileOptions, downloadFile } from '../../hub/download.js'
import { StatusError } from '../../hub/request.js'
import { parseRouteName, type RouteName } from './names.js'

/** Where openpilot's tests have their segments: {dongle}/{log}/{segment}/{file}. */
export const ciBase = new URL('https://commadataci.blob.core.windows.net/openpilotci/')

/** Where comma_car_segments is: database.json, segments/{dongle}/{log}/{segment}/{file}. */
export const carSegmentsBase = new URL(
  'https://huggingface.co/datasets/commaai/commaCarSegments/resolve/main/',
)

/** A route, or a segment, with its device: what an address needs. */
export interface RemoteName extends RouteName {
  readonly dongle: string
}

/** A file, and the addresses that it may have: the first that is there counts. */
export interface RemoteFile {
  /** Below the folder of the downloads, with `/`. */
  readonly name: string
  readonly url: URL
}

/**
 * A file of a segment: `rlog.zst` may also be `rlog.bz2`, as all logs until 2024 are.
 * @param base - what {dongle}/{log}/{segment}/{file} is below
 */
export function segmentFile(
  { dongle, log, segment }: RemoteName & { readonly segment: number },
  file: string,
  base: URL,
): RemoteFile[] {
  const names = file.endsWith('.zst') ? [file, file.replace(/zst$/, 'bz2')] : [file]
  return names.map(name => {
    const parts = [dongle, log, String(segment), name]
    return { name: parts.join('/'), url: below(base, ...parts) }
  })
}

/**
 * The name of a route or segment for an address.
 * @throws SparkError ERR_FORMAT for what is none, or has no device
 */
export function remoteName(text: string, where: string): RemoteName {
  const name = parseRouteName(text)
  if (name?.dongle) return { ...name, dongle: name.dongle }
  throw new SparkError(
    'ERR_FORMAT',
    `${where} must be dongle|log--segment or dongle/log/segment, got '${text.slice(0, 100)}'`,
  )
}

/**
 * Reads a list of segments: one in each line; empty lines and those that begin with # do not count.
 * @param source - where it is from, for messages
 * @throws SparkError ERR_FORMAT
 */
export function parseSegmentList(text: string, source: string): RemoteName[] {
  const lines = text.split('\n').map((line, i) => ({ text: line.trim(), number: i + 1 }))
  const names = lines
    .filter(({ text }) => text !== '' && !text.startsWith('#'))
    .map(({ text, number }) => remoteName(text, `line ${number} of ${source}`))
  if (names.length > 0) return names
  throw new SparkError('ERR_FORMAT', `${source} has no segments: give one in each line`)
}

/**
 * The segments of a platform in the database.json of comma_car_segments.
 * @throws SparkError ERR_FORMAT for another file, ERR_ARGUMENT for a platform that it does not have
 */
export function segmentsOfPlatform(text: string, platform: string, source: string): RemoteName[] {
  let database: unknown
  try {
    database = JSON.parse(text)
  } catch (cause) {
    throw new SparkError('ERR_FORMAT', `${source} is no JSON: remove it, so that it is downloaded again`, {
      cause,
    })
  }
  const isTable = typeof database === 'object' && database !== null && !Array.isArray(database)
  if (!isTable)
    throw new SparkError('ERR_FORMAT', `${source} must be an object of platforms and their segments`)
  const platforms = database as Record<string, unknown>
  if (!Object.hasOwn(platforms, platform)) {
    const names = Object.keys(platforms)
    const hint = didYouMean(platform, names)
    throw new SparkError(
      'ERR_ARGUMENT',
      `--platform ${platform}: there is none in ${source}${hint}; it has ${names.length}, such as ${names.slice(0, 5).join(', ')}`,
    )
  }
  const entries = platforms[platform]
  if (!Array.isArray(entries))
    throw new SparkError('ERR_FORMAT', `${source}: ${platform} must have a list of segments`)
  // A last part that is a letter says which log is meant: dongle/log/segment/s.
  return entries.map((entry, i) =>
    remoteName(String(entry).replace(/\/[a-z]$/, ''), `segment ${i} of ${platform} in ${source}`),
  )
}

/** What became of a file. */
export interface Fetched {
  /** Its path. */
  readonly file: string
  /** Its size. */
  readonly bytes: number
  /** Whether it was downloaded now; otherwise it was there. */
  readonly isNew: boolean
}

/** Whether a server said that it does not have a file. */
export const isNotFound = (error: unknown): boolean => error instanceof StatusError && error.status === 404

/**
 * Downloads a file, unless it is there under one of its names.
 * @throws SparkError as downloadFile; of several addresses that do not have it that of the first
 */
export async function fetchRemote(
  candidates: readonly RemoteFile[],
  folder: string,
  options: DownloadFileOptions,
): Promise<Fetched> {
  const files = candidates.map(({ name, url }) => ({ url, file: path.join(folder, ...name.split('/')) }))
  for (const { file } of files) {
    const there = await stat(file).catch(() => undefined)
    if (there) return { file, bytes: there.size, isNew: false }
  }
  let refusal: unknown
  for (const { url, file } of files) {
    try {
      const isNew = await downloadFile(url, file, options)
      return { file, bytes: (await stat(file)).size, isNew }
    } catch (error) {
      if (!isNotFound(error)) throw error
      refusal ??= error
    }
  }
  throw refusal
}
