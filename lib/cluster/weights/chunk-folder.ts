// chunk-folder.ts: chunks as files, each named by its SHA-256.
import { readdir, rm, stat, utimes } from 'node:fs/promises'
import path from 'node:path'
import type { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import { makeFolder, writeFileAtomic } from '../../io/atomic-write.js'
import { readBytes } from '../../io/read-file.js'
import { hashOf, isHash } from './manifest.js'

/** What is known of a chunk without reading it. */
export interface KeptChunk {
  readonly bytes: number
  /** When it was last written or read, in milliseconds since 1970. */
  used: number
}

/** Files of chunks below a folder, in 256 folders by the first two digits. */
export class ChunkFolder {
  readonly #folder: string
  readonly #chunks: Map<string, KeptChunk>

  private constructor(folder: string, chunks: Map<string, KeptChunk>) {
    this.#folder = folder
    this.#chunks = chunks
  }

  /** Finds the chunks of a folder, and removes what a killed process left half written. */
  static async open(folder: string): Promise<ChunkFolder> {
    await makeFolder(folder)
    const chunks = new Map<string, KeptChunk>()
    for (const part of await readdir(folder)) {
      if (!/^[0-9a-f]{2}$/.test(part)) continue
      for (const name of await readdir(path.join(folder, part))) {
        const file = path.join(folder, part, name)
        if (isHash(name)) {
          const { size, mtimeMs } = await stat(file)
          chunks.set(name, { bytes: size, used: mtimeMs })
        } else if (name.endsWith('.tmp')) await rm(file, { force: true })
      }
    }
    return new ChunkFolder(folder, chunks)
  }

  /** Chunks that are there. */
  get chunks(): ReadonlyMap<string, KeptChunk> {
    return this.#chunks
  }

  /**
   * A chunk whose content has its hash; what was damaged is removed and not there.
   * @throws SparkError ERR_IO where it cannot be read at the moment
   */
  async read(hash: string): Promise<Uint8Array | undefined> {
    if (!this.#chunks.has(hash)) return undefined
    const bytes = await readBytes(this.#fileOf(hash)).catch(unlessGone)
    if (!bytes || (await hashOf(bytes)) !== hash) {
      await this.remove(hash)
      return undefined
    }
    await this.touch(hash)
    return bytes
  }

  /** Notes that a chunk is in use, where it is there. */
  async touch(hash: string): Promise<void> {
    const chunk = this.#chunks.get(hash)
    if (!chunk) return
    chunk.used = Date.now()
    const now = new Date(chunk.used)
    await utimes(this.#fileOf(hash), now, now).catch(() => {})
  }

  /** Keeps a chunk whose hash was checked. */
  async write(hash: string, bytes: Uint8Array): Promise<void> {
    await makeFolder(path.dirname(this.#fileOf(hash)))
    await writeFileAtomic(this.#fileOf(hash), [bytes])
    this.#chunks.set(hash, { bytes: bytes.byteLength, used: Date.now() })
  }

  async remove(hash: string): Promise<void> {
    this.#chunks.delete(hash)
    await rm(this.#fileOf(hash), { force: true })
  }

  #fileOf(hash: string): string {
    return path.join(this.#folder, hash.slice(0, 2), hash)
  }
}

/**
 * Undefined for the error of a file that is not there, or ended too soon.
 * @throws the error otherwise: a disk or a process with too many files may be better later
 */
export function unlessGone(error: unknown): undefined {
  const { code, cause } = error as SparkError & { readonly cause?: { readonly code?: string } }
  if (code !== 'ERR_FORMAT' && cause?.code !== 'ENOENT') throw error
  debug((error as Error).message)
}
