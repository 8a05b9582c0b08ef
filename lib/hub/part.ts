// part.ts: a file that is not complete: its bytes so far, and what they belong to.
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises'
import { SparkError } from '../core/errors.js'
import { ioError } from '../io/atomic-write.js'
import { readText } from '../io/read-file.js'
import { type Digest, digestName, digestOf } from './digest.js'
import { failed, settled } from './request.js'
import { Interrupted } from './retry.js'

/** What the bytes of an unfinished file belong to. */
interface Origin {
  readonly url: string
  /** ETag or date of the file; a server sends the rest only if it has not changed. */
  readonly version: string
}

/** Bytes that are there. */
interface Rest {
  readonly bytes: number
  /** What If-Range says; undefined where the digest of the whole tells. */
  readonly version: string | undefined
}

/** Where an unfinished file lies, and what it is to become. */
export interface PartOptions {
  /** The file that it becomes. */
  readonly target: string
  /** Its path until then. */
  readonly file: string
  /** What the target must be. A file that is named after it can go on with bytes from any address. */
  readonly digest?: Digest | undefined
  readonly isNamedByDigest?: boolean
  /** Bytes of the target. */
  readonly size?: number | undefined
}

/** What {@link Part.append} reads. */
export interface AppendOptions {
  readonly url: URL
  /** Bytes before those of the response. */
  readonly start: number
  /** Bytes of the file; null where the server does not say. */
  readonly total: number | null
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: ((progress: { bytes: number; total: number | null }) => void) | undefined
}

/** A file that is not complete, and beside it what it belongs to. */
export class Part {
  readonly #options: PartOptions
  readonly #file: string
  readonly #note: string

  constructor(options: PartOptions) {
    this.#options = options
    this.#file = options.file
    this.#note = `${options.file}.json`
  }

  async size(): Promise<number> {
    return (await stat(this.#file).catch(() => undefined))?.size ?? 0
  }

  /** Bytes of the URL that are there, and the version they are of. */
  async resume(url: string): Promise<Rest | undefined> {
    const bytes = await this.size()
    const { size, isNamedByDigest } = this.#options
    if (size !== undefined && bytes > size) {
      await this.discard()
      return undefined
    }
    if (bytes === 0) return undefined
    if (isNamedByDigest) return { bytes, version: undefined }
    const note = await readText(this.#note).catch(() => '{}')
    let origin: Partial<Origin> = {}
    try {
      origin = JSON.parse(note)
    } catch {
      // A note that is damaged: the download begins anew.
    }
    return origin.url === url && origin.version ? { bytes, version: origin.version } : undefined
  }

  async begin(origin: Origin): Promise<void> {
    await this.discard()
    if (this.#options.isNamedByDigest) return
    await this.#write(this.#note, 'w', handle => handle.writeFile(JSON.stringify(origin)))
  }

  async append(response: Response, { url, start, total, signal, onProgress }: AppendOptions): Promise<void> {
    let bytes = start
    const { size } = this.#options
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
        if (size !== undefined && bytes + value.byteLength > size) {
          await reader?.cancel()
          throw failed(url, `it has more than the ${size} bytes that were announced`)
        }
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

  /**
   * Verifies the file and gives it its name.
   * @throws SparkError ERR_FORMAT for other content, which is removed; ERR_IO
   */
  async finish(): Promise<void> {
    const { digest, target } = this.#options
    if (digest !== undefined) {
      const found = await digestOf(this.#file, digest.algorithm)
      if (found !== digest.hex) {
        await this.discard()
        const hint = 'it was removed; either the server has another file, or it was changed on the way'
        throw new SparkError(
          'ERR_FORMAT',
          `${target} has ${digestName[digest.algorithm]} ${found}, expected ${digest.hex}: ${hint}`,
        )
      }
    }
    await rename(this.#file, target).catch(error => {
      throw ioError('write', target, error)
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
