// manifest.ts: a file as a list of chunks, each named by its SHA-256.
import { createHash, webcrypto } from 'node:crypto'
import path from 'node:path'
import { argumentError, expectInteger, expectKnownOptions, expectSignal } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { Pacer } from '../../core/paced.js'
import { digest, fileIdentity } from '../../io/content-hash.js'
import { KeptFile } from '../../io/kept-file.js'
import { readCached, writeCached } from '../../io/user-cache.js'

/** Bytes of a chunk, unless a caller says otherwise; the last one of a file may be shorter. */
export const defaultChunkBytes = 4 << 20

/** Bytes that a chunk may have. */
export const maxChunkBytes = 64 << 20

/** Chunks that a file may have: 4 TiB in chunks of 4 MiB. */
const maxChunks = 1 << 20

/** A file in chunks. It is plain JSON, so that it can be sent and kept; {@link parseManifest} checks one that was sent. */
export interface FileManifest {
  /** Its path below the folder of its model, with `/`: `model-00001-of-00002.safetensors`. */
  readonly name: string
  /** How many it has. */
  readonly bytes: number
  /** Bytes of each chunk but the last one. */
  readonly chunkBytes: number
  /** SHA-256 of the chunks in hexadecimal digits, in order. */
  readonly chunks: readonly string[]
}

/** A half-open range of bytes. */
export interface ByteRange {
  /** Of the first byte. */
  readonly begin: number
  /** Behind the last byte. */
  readonly end: number
}

/** Options of {@link manifestOf}. */
export interface ManifestOptions {
  /** Name in the manifest. Default: the last part of the path. */
  readonly name?: string
  /** Bytes of a chunk, a multiple of 4096. Default 4 MiB. */
  readonly chunkBytes?: number
  /** Ends the reading. */
  readonly signal?: AbortSignal
}

/** The SHA-256 of bytes in hexadecimal digits; computed beside the JavaScript thread. */
export async function hashOf(bytes: Uint8Array): Promise<string> {
  const digest = await webcrypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>)
  return Buffer.from(digest).toString('hex')
}

/** Whether a value is a SHA-256 in hexadecimal digits. */
export const isHash = (value: unknown): boolean => typeof value === 'string' && /^[0-9a-f]{64}$/.test(value)

/**
 * The manifest of a file. It is remembered in the user's cache for as long as size, times and inode of the file stay the same.
 * @throws SparkError ERR_ARGUMENT, ERR_IO, ERR_FORMAT when the file changes meanwhile; the reason of the signal
 */
export async function manifestOf(file: string, options: ManifestOptions = {}): Promise<FileManifest> {
  expectKnownOptions('options', options, ['name', 'chunkBytes', 'signal'])
  const { name = path.basename(file), chunkBytes = defaultChunkBytes, signal } = options
  expectFileName('options.name', name)
  expectChunkBytes('options.chunkBytes', chunkBytes)
  expectSignal('options.signal', signal)
  const identity = await fileIdentity(file)
  const note = identity && `chunks/${digest(`${identity} ${chunkBytes}`)}.json`
  const known = note && (await readCached(note))
  if (known) {
    const chunks = (known as { chunks?: unknown }).chunks
    const bytes = Number((known as { bytes?: unknown }).bytes)
    const remembered = { name, bytes, chunkBytes, chunks }
    if (problemOf(remembered) === undefined) return remembered as FileManifest
  }
  const found = await readChunks(file, chunkBytes, new Pacer(signal))
  if (note && (await fileIdentity(file)) === identity) await writeCached(note, found)
  return { name, chunkBytes, ...found }
}

async function readChunks(
  file: string,
  chunkBytes: number,
  pacer: Pacer,
): Promise<{ bytes: number; chunks: string[] }> {
  const kept = await KeptFile.open(file)
  const bytes = kept.byteLength
  const chunks: string[] = []
  for (let at = 0; at < bytes; at += chunkBytes) {
    chunks.push(await hashOf(await kept.load(at, Math.min(chunkBytes, bytes - at))))
    await pacer.pause()
  }
  return { bytes, chunks }
}

/** What a manifest is known by: the SHA-256 of its content. Files of equal content and name have the same. */
export function manifestId({ name, bytes, chunkBytes, chunks }: FileManifest): string {
  const hash = createHash('sha256').update(JSON.stringify([name, bytes, chunkBytes]))
  for (const chunk of chunks) hash.update(chunk)
  return hash.digest('hex')
}

/**
 * A manifest that came from elsewhere, checked: nothing in it may lead out of a folder or to memory that no file needs.
 * @throws SparkError ERR_FORMAT
 */
export function parseManifest(value: unknown): FileManifest {
  const problem = problemOf(value)
  if (problem !== undefined) throw new SparkError('ERR_FORMAT', `the manifest of a file ${problem}`)
  const { name, bytes, chunkBytes, chunks } = value as FileManifest
  return { name, bytes, chunkBytes, chunks: [...chunks] }
}

function problemOf(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return 'is no object'
  const { name, bytes, chunkBytes, chunks } = value as Record<string, unknown>
  if (!isFileName(name)) return `has the name ${JSON.stringify(name)?.slice(0, 80)}`
  if (!Number.isSafeInteger(bytes) || (bytes as number) < 0) return `has ${bytes} bytes`
  if (!isChunkBytes(chunkBytes)) return `has chunks of ${chunkBytes} bytes`
  const count = Math.ceil((bytes as number) / chunkBytes)
  if (count > maxChunks) return `has ${count} chunks; at most ${maxChunks}`
  if (!Array.isArray(chunks) || chunks.length !== count) return `has not the ${count} chunks of its bytes`
  if (!chunks.every(isHash)) return 'has a chunk without a SHA-256'
  return undefined
}

const isChunkBytes = (value: unknown): value is number =>
  Number.isSafeInteger(value) &&
  (value as number) >= 4096 &&
  (value as number) <= maxChunkBytes &&
  (value as number) % 4096 === 0

/** Throws ERR_ARGUMENT for what no chunk has. */
export function expectChunkBytes(name: string, value: unknown): asserts value is number {
  if (!isChunkBytes(value)) throw argumentError(name, `a multiple of 4096 in [4096, ${maxChunkBytes}]`, value)
}

/** Names of files below a folder: no part begins with a dot, so none leads elsewhere, and none is a temporary file. */
function isFileName(value: unknown): value is string {
  const isPart = (part: string): boolean => /^[\w+@-][\w.+@ -]*$/.test(part) && part.length <= 200
  return typeof value === 'string' && value.length <= 1000 && value.split('/').every(isPart)
}

/** Throws ERR_ARGUMENT for anything but a relative path of plain names. */
export function expectFileName(name: string, value: unknown): asserts value is string {
  if (!isFileName(value)) throw argumentError(name, 'a relative path of plain names', value)
}

/** The place of a chunk in its file. */
export function rangeOf({ bytes, chunkBytes }: FileManifest, index: number): ByteRange {
  return { begin: index * chunkBytes, end: Math.min(bytes, (index + 1) * chunkBytes) }
}

/**
 * Numbers of the chunks that hold bytes of some ranges, in order; all of them without ranges.
 * @throws SparkError ERR_ARGUMENT for a range that is not in the file
 */
export function chunksIn(manifest: FileManifest, ranges: readonly ByteRange[] | undefined): number[] {
  if (ranges === undefined) return manifest.chunks.map((_, index) => index)
  const wanted = new Set<number>()
  for (const { begin, end } of ranges) {
    expectInteger('begin of a range', begin, 0, manifest.bytes)
    expectInteger('end of a range', end, begin, manifest.bytes)
    const last = Math.ceil(end / manifest.chunkBytes)
    if (begin === end) continue
    for (let i = Math.floor(begin / manifest.chunkBytes); i < last; i++) wanted.add(i)
  }
  return [...wanted].sort((a, b) => a - b)
}
