// kept-file.ts: a file that stays open, so that its parts can be read when they are needed, even after somebody has
// replaced or removed it.
import { fstatSync, readSync, type Stats } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { SparkError } from '../core/errors.js'
import { ioError } from './atomic-write.js'
import { fill, openFile } from './read-file.js'

const closing = new FinalizationRegistry<FileHandle>(handle => void handle.close())

/** One read call takes at most 2^31 − 1 bytes. */
const maxChunk = 1 << 30

/** A file that is closed when nobody refers to it any more. */
export class KeptFile {
  /** Its path. */
  readonly path: string
  /** How many bytes it has. */
  readonly byteLength: number
  readonly #handle: FileHandle
  readonly #identity: string

  private constructor(path: string, handle: FileHandle, stats: Stats) {
    this.path = path
    this.byteLength = stats.size
    this.#handle = handle
    this.#identity = identityOf(stats)
    closing.register(this, handle)
  }

  /**
   * Opens a file.
   * @throws SparkError as {@link openFile}
   */
  static async open(path: string): Promise<KeptFile> {
    const handle = await openFile(path)
    return new KeptFile(path, handle, fstatSync(handle.fd))
  }

  /**
   * Reads bytes from a position on, and waits for them.
   * @throws SparkError ERR_FORMAT when the content of the file has changed, ERR_IO, ERR_OUT_OF_MEMORY
   */
  read(begin: number, byteLength: number): Uint8Array {
    const bytes = this.#memory(byteLength)
    try {
      for (let done = 0; done < byteLength; ) {
        const count = readSync(
          this.#handle.fd,
          bytes,
          done,
          Math.min(maxChunk, byteLength - done),
          begin + done,
        )
        if (count === 0) break
        done += count
      }
    } catch (error) {
      throw ioError('read', this.path, error)
    }
    this.#expectSame()
    return bytes
  }

  /**
   * As {@link KeptFile.read}, without holding the JavaScript thread up.
   * @throws SparkError as {@link KeptFile.read}
   */
  async load(begin: number, byteLength: number): Promise<Uint8Array> {
    const bytes = this.#memory(byteLength)
    await this.loadInto(begin, bytes)
    return bytes
  }

  /**
   * Fills `bytes` with those of the file from a position on.
   * @throws SparkError as {@link KeptFile.read}
   */
  async loadInto(begin: number, bytes: Uint8Array): Promise<void> {
    try {
      await fill(this.#handle, this.path, bytes, begin)
    } catch (error) {
      this.#expectSame()
      throw ioError('read', this.path, error)
    }
    this.#expectSame()
  }

  #memory(byteLength: number): Uint8Array {
    try {
      return new Uint8Array(byteLength)
    } catch (error) {
      const message = `${this.path}: no memory for ${byteLength} bytes`
      throw new SparkError('ERR_OUT_OF_MEMORY', message, { cause: error })
    }
  }

  #expectSame(): void {
    if (identityOf(fstatSync(this.#handle.fd)) === this.#identity) return
    throw new SparkError('ERR_FORMAT', `${this.path} has changed since it was loaded: load it again`)
  }
}

/** What changes with the content of a file, but not with its name. */
const identityOf = ({ size, mtimeMs }: Stats): string => `${size} ${mtimeMs}`
