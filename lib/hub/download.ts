// download.ts: downloads of files: resumed, verified, retried, once for all processes.
import { createHash, type Hash } from 'node:crypto'
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { argumentError, expectInteger, expectKnownOptions, expectSignal, expectText } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { ioError, makeFolder } from '../io/atomic-write.js'
import { type Lock, lockFile } from '../io/lock.js'
import { readText } from '../io/read-file.js'
import { failed, request, StatusError, settled } from './request.js'

/** Options of {@link downloadFile}. */
export interface DownloadFileOptions {
  /** SHA-256 of the file, in hexadecimal digits. Default: it is not verified. */
  readonly sha256?: string
  /** Attempts without progress. Default: 5. */
  readonly attempts?: number
  /** Ends the download; what has arrived stays for the next one. */
  readonly signal?: AbortSignal
  /** Is told about progress. */
  readonly onProgress?: (progress: DownloadProgress) => void
}

/** How far a download is. */
export interface DownloadProgress {
  /** Bytes that are there. */
  readonly bytes: number
  /** Bytes of the file; null where the server does not say. */
  readonly total: number | null
}

/** What a download may be retried after. */
class Interrupted extends Error {
  /** Milliseconds that the server asks to wait. */
  readonly wait: number

  constructor(reason: SparkError, wait = 0) {
    super(reason.message, { cause: reason })
    this.wait = wait
  }
}

/** What the bytes of an unfinished file belong to. */
interface Origin {
  readonly url: string
  /** ETag or date of the file; a server sends the rest only if it has not changed. */
  readonly version: string
}

const retried = [408, 425, 429, 500, 502, 503, 504]
const [firstWait, maxWait, pollEvery] = [500, 60_000, 200]

/**
 * Downloads a file, unless it is there. It is written beside `file`, with `.part` behind its name, and renamed once it is
 * complete, so that a download that was interrupted goes on where it was. Of several processes one downloads and the others wait.
 * @param url - http: or https:
 * @returns whether it was downloaded
 * @throws SparkError ERR_ARGUMENT; ERR_IO when the server or the disk refuses, with the last reason after all attempts;
 * ERR_FORMAT when the file does not have the SHA-256; the reason of `signal` when it is aborted
 */
export async function downloadFile(
  url: string | URL,
  file: string,
  options: DownloadFileOptions = {},
): Promise<boolean> {
  expectText('file', file)
  expectKnownOptions('options', options, ['sha256', 'attempts', 'signal', 'onProgress'])
  const { sha256, attempts = 5, signal } = options
  expectInteger('options.attempts', attempts, 1)
  expectSignal('options.signal', signal)
  if (sha256 !== undefined && !/^[0-9a-f]{64}$/i.test(sha256))
    throw argumentError('options.sha256', '64 hexadecimal digits', sha256)
  const source = URL.canParse(String(url)) ? new URL(String(url)) : undefined
  if (!source || !/^https?:$/.test(source.protocol)) throw argumentError('url', 'an http: or https: URL', url)
  const target = path.resolve(file)
  await makeFolder(path.dirname(target))
  using lock = await takeLock(target, signal)
  if (lock === undefined || (await isThere(target))) return false
  const part = new Part(target)
  for (let left = attempts, wait = firstWait; ; ) {
    signal?.throwIfAborted()
    const before = await part.size()
    try {
      await attempt(source, part, options)
      await part.finish(sha256)
      return true
    } catch (error) {
      if (!(error instanceof Interrupted)) throw error
      const hasProgress = (await part.size()) > before
      if (hasProgress) [left, wait] = [attempts, firstWait]
      if (--left === 0) throw error.cause
      await sleep(Math.min(maxWait, Math.max(error.wait, wait * (0.5 + Math.random()))), undefined, {
        ...(signal && { signal }),
      }).catch(() => signal?.throwIfAborted())
      wait *= 2
    }
  }
}

const isThere = async (file: string): Promise<boolean> =>
  (await stat(file).catch(() => undefined)) !== undefined

/** The lock of a file; undefined once another process has made it. */
async function takeLock(target: string, signal: AbortSignal | undefined): Promise<Lock | undefined> {
  for (;;) {
    signal?.throwIfAborted()
    try {
      return await lockFile(target)
    } catch (error) {
      if (!(error instanceof SparkError && error.code === 'ERR_BUSY')) throw error
    }
    await sleep(pollEvery)
    if (await isThere(target)) return undefined
  }
}

/** One request, which goes on where the last one was interrupted. */
async function attempt(url: URL, part: Part, options: DownloadFileOptions): Promise<void> {
  const { signal } = options
  const there = await part.resume(String(url))
  const headers: Record<string, string> = { 'accept-encoding': 'identity' }
  if (there) Object.assign(headers, { range: `bytes=${there.bytes}-`, 'if-range': there.version })
  const response = await request(url, { signal, headers }).catch(error => {
    throw error instanceof SparkError && !/ it leads to /.test(error.message) ? new Interrupted(error) : error
  })
  if (!response.ok && response.status !== 416) {
    await response.body?.cancel()
    const refusal = new StatusError(url, response)
    const wait = 1000 * Number(response.headers.get('retry-after') ?? 0)
    throw retried.includes(response.status)
      ? new Interrupted(refusal, Number.isFinite(wait) ? wait : 0)
      : refusal
  }
  const [, from, whole] =
    /^bytes (?:(\d+)-\d+|\*)\/(\d+|\*)$/.exec(response.headers.get('content-range') ?? '') ?? []
  const isRest = there !== undefined && response.status === 206 && Number(from) === there.bytes
  if (response.status === 416 || (response.status === 206 && !isRest)) {
    await response.body?.cancel()
    const isComplete = response.status === 416 && there !== undefined && Number(whole) === there.bytes
    if (isComplete) return
    await part.discard()
    throw new Interrupted(failed(url, `the server has no range from byte ${there?.bytes} on`))
  }
  const { headers: answer } = response
  const version = answer.get('etag')?.replace(/^W\/.*/, '') || answer.get('last-modified') || ''
  if (!isRest) await part.begin({ url: String(url), version })
  const length = answer.get('content-length')
  const start = isRest ? there.bytes : 0
  const total = length === null ? null : start + Number(length)
  await part.append(response, { ...options, url, start, total })
}

/** A file that is not complete, and beside it what it belongs to. */
class Part {
  readonly #target: string
  readonly #file: string
  readonly #note: string

  constructor(target: string) {
    this.#target = target
    this.#file = `${target}.part`
    this.#note = `${target}.part.json`
  }

  async size(): Promise<number> {
    return (await stat(this.#file).catch(() => undefined))?.size ?? 0
  }

  /** Bytes of the URL that are there, and the version they are of. */
  async resume(url: string): Promise<{ bytes: number; version: string } | undefined> {
    const bytes = await this.size()
    const note = await readText(this.#note).catch(() => '{}')
    let origin: Partial<Origin> = {}
    try {
      origin = JSON.parse(note)
    } catch {
      // A note that is damaged: the download begins anew.
    }
    return bytes > 0 && origin.url === url && origin.version ? { bytes, version: origin.version } : undefined
  }

  async begin(origin: Origin): Promise<void> {
    await this.discard()
    await this.#write(this.#note, 'w', handle => handle.writeFile(JSON.stringify(origin)))
  }

  async append(response: Response, { url, start, total, signal, onProgress }: AppendOptions): Promise<void> {
    let bytes = start
    await this.#write(this.#file, 'a', async handle => {
      const reader = response.body?.getReader()
      for (;;) {
        const read = reader?.read() ?? Promise.resolve({ done: true as const, value: undefined })
        const { done, value } = await settled(
          read,
          signal,
          (why, cause) => new Interrupted(failed(url, `after ${bytes} bytes: ${why}`, cause)),
        )
        if (done) break
        await handle.appendFile(value).catch(async error => {
          await reader?.cancel()
          throw error
        })
        bytes += value.byteLength
        onProgress?.({ bytes, total })
      }
      await handle.sync()
    })
    if (total !== null && bytes !== total)
      throw new Interrupted(failed(url, `it ended after ${bytes} of ${total} bytes`))
  }

  /** Verifies the file and gives it its name. */
  async finish(sha256: string | undefined): Promise<void> {
    if (sha256 !== undefined) {
      const found = await hashOf(this.#file)
      if (found !== sha256.toLowerCase()) {
        await this.discard()
        const hint = 'it was removed; either the server has another file, or it was changed on the way'
        throw new SparkError(
          'ERR_FORMAT',
          `${this.#target} has SHA-256 ${found}, expected ${sha256}: ${hint}`,
        )
      }
    }
    await rename(this.#file, this.#target).catch(error => {
      throw ioError('write', this.#target, error)
    })
    await rm(this.#note, { force: true })
  }

  async discard(): Promise<void> {
    await Promise.all([this.#file, this.#note].map(file => rm(file, { force: true })))
  }

  async #write(file: string, flags: string, work: (handle: FileHandle) => Promise<void>): Promise<void> {
    let handle: FileHandle | undefined
    try {
      handle = await open(file, flags)
      await work(handle)
    } catch (error) {
      throw error instanceof Interrupted || !(error as NodeJS.ErrnoException).code
        ? error
        : ioError('write', file, error)
    } finally {
      await handle?.close()
    }
  }
}

interface AppendOptions extends Pick<DownloadFileOptions, 'signal' | 'onProgress'> {
  readonly url: URL
  readonly start: number
  readonly total: number | null
}

async function hashOf(file: string): Promise<string> {
  const handle = await open(file)
  const hash: Hash = createHash('sha256')
  try {
    for await (const piece of handle.createReadStream({ highWaterMark: 1 << 20, autoClose: false }))
      hash.update(piece as Uint8Array)
  } finally {
    await handle.close()
  }
  return hash.digest('hex')
}
