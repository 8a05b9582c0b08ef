// weight-store.ts: what a node keeps of weights: chunks by their SHA-256, so that each comes over the network once.
import { statfs } from 'node:fs/promises'
import path from 'node:path'
import { argumentError, expectInteger, expectKnownOptions, expectText } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { type Lock, lockFolder } from '../../io/lock.js'
import { ChunkFolder } from './chunk-folder.js'
import { type FileManifest, hashOf, isHash, manifestOf, maxChunkBytes } from './manifest.js'
import { bytesIn, type StoredFile, StoredFiles } from './stored-files.js'

/** Options of {@link WeightStore.open}. */
export interface WeightStoreOptions {
  /**
   * Bytes that chunks and files may have; the least recently used ones that nobody holds make way for new ones. While a file is
   * put together its chunks are there twice. Default: what the disk has.
   */
  readonly maxBytes?: number
}

/**
 * Chunks of weights in a folder of this process. Whatever moment the process is killed at: a chunk is whole or not there, and what
 * is read was checked against its hash.
 * @example
 * const store = await WeightStore.open('weights')
 * await store.write(hash, bytes)
 * const same = await store.read(hash)
 * await store.close()
 */
export class WeightStore implements AsyncDisposable {
  /** Where it is. */
  readonly folder: string
  readonly #lock: Lock
  readonly #maxBytes: number
  readonly #chunks: ChunkFolder
  readonly #files: StoredFiles
  readonly #held = new Map<string, number>()
  readonly #writing = new Map<string, Promise<void>>()
  readonly #turns = new Map<string, Promise<unknown>>()
  #freeing: Promise<unknown> = Promise.resolve()
  /** Bytes that are being written. */
  #coming = 0
  #closed = false

  private constructor(folder: string, lock: Lock, maxBytes: number, chunks: ChunkFolder, files: StoredFiles) {
    this.folder = folder
    this.#lock = lock
    this.#maxBytes = maxBytes
    this.#chunks = chunks
    this.#files = files
  }

  /**
   * Opens the store of a folder, or begins one there.
   * @throws SparkError ERR_ARGUMENT, ERR_BUSY naming the process that has it open, ERR_IO
   */
  static async open(folder: string, options: WeightStoreOptions = {}): Promise<WeightStore> {
    expectText('folder', folder)
    expectKnownOptions('options', options, ['maxBytes'])
    const { maxBytes = Number.MAX_SAFE_INTEGER } = options
    expectInteger('options.maxBytes', maxBytes, 1)
    const lock = await lockFolder(folder)
    try {
      const chunks = await ChunkFolder.open(path.join(folder, 'chunks'))
      const files = await StoredFiles.open(path.join(folder, 'files'))
      return new WeightStore(path.resolve(folder), lock, maxBytes, chunks, files)
    } catch (error) {
      lock.release()
      throw error
    }
  }

  /** Bytes of its chunks and files; not those of files that lie elsewhere. */
  get bytes(): number {
    let bytes = 0
    for (const chunk of this.#chunks.chunks.values()) bytes += chunk.bytes
    for (const file of this.#files.files.values()) if (file.group !== null) bytes += bytesIn(file)
    return bytes
  }

  /** Whether a chunk is there, as far as is known without reading it. */
  has(hash: string): boolean {
    return this.#chunks.chunks.has(hash) || this.#files.has(hash)
  }

  /**
   * A chunk, checked against its hash; undefined where it is not there, or was damaged: then it is forgotten.
   * @throws SparkError ERR_ARGUMENT; ERR_IO where it cannot be read at the moment
   */
  async read(hash: string): Promise<Uint8Array | undefined> {
    expectHash(hash)
    this.#expectOpen()
    return (await this.#chunks.read(hash)) ?? (await this.#files.read(hash))
  }

  /**
   * Keeps a chunk; it is on the disk when this resolves.
   * @throws SparkError ERR_FORMAT for bytes that do not have this hash; ERR_IO where the disk or the store is full, with numbers
   */
  async write(hash: string, bytes: Uint8Array): Promise<void> {
    expectHash(hash)
    this.#expectOpen()
    if (bytes.byteLength > maxChunkBytes)
      throw new SparkError('ERR_RANGE', `a chunk has ${bytes.byteLength} bytes; at most ${maxChunkBytes}`)
    const found = await hashOf(bytes)
    if (found !== hash) throw new SparkError('ERR_FORMAT', `bytes have the SHA-256 ${found}, not ${hash}`)
    if (this.has(hash)) return this.#chunks.touch(hash)
    let writing = this.#writing.get(hash)
    if (!writing) {
      writing = this.#write(hash, bytes).finally(() => this.#writing.delete(hash))
      this.#writing.set(hash, writing)
    }
    await writing
  }

  /** Keeps chunks from being removed for new ones until this is disposed. They need not be there yet. */
  hold(hashes: Iterable<string>): Disposable {
    const held = new Set(hashes)
    for (const hash of held) this.#held.set(hash, (this.#held.get(hash) ?? 0) + 1)
    return {
      [Symbol.dispose]: () => {
        for (const hash of held) {
          const left = this.#held.get(hash)! - 1
          if (left > 0) this.#held.set(hash, left)
          else this.#held.delete(hash)
        }
        held.clear()
      },
    }
  }

  /**
   * Serves the chunks of a file that is on this machine anyway, without a copy. They are checked whenever they are read.
   * @returns its manifest
   * @throws SparkError ERR_IO
   */
  async addFile(
    file: string,
    options: { name?: string; chunkBytes?: number; signal?: AbortSignal } = {},
  ): Promise<FileManifest> {
    this.#expectOpen()
    const manifest = await manifestOf(file, options)
    await this.#files.add(manifest, path.resolve(file))
    return manifest
  }

  /** Files in which chunks lie. */
  get files(): readonly StoredFile[] {
    return [...this.#files.files.values()]
  }

  /**
   * @internal A file of this store with the given chunks and those that it has already, all of which are there.
   * @throws SparkError ERR_IO
   */
  async assemble(
    id: string,
    manifest: FileManifest,
    wanted: readonly number[],
    group = id,
  ): Promise<StoredFile> {
    const known = this.#files.files.get(id)
    const there = known?.group === null ? undefined : known
    if (there?.group === group && wanted.every(index => there.chunks.has(index))) {
      await this.#files.touch(there)
      return there
    }
    const chunks = [...new Set([...(there?.chunks ?? []), ...wanted])].sort((a, b) => a - b)
    await this.expectSpace(bytesIn({ manifest, chunks: new Set(chunks) }), `the file ${manifest.name}`)
    const file = await this.#files.assemble(manifest, group, chunks, async index => {
      const bytes = await this.read(manifest.chunks[index]!)
      if (bytes) return bytes
      throw new SparkError(
        'ERR_IO',
        `chunk ${index} of ${manifest.name} is damaged on this disk: fetch the file again`,
      )
    })
    for (const index of chunks) await this.#chunks.remove(manifest.chunks[index]!)
    return file
  }

  /** @internal Removes chunks in no file that nobody holds and nobody has used for so many milliseconds. */
  async removeUnused(ms: number): Promise<void> {
    const since = Date.now() - ms
    for (const [hash, { used }] of [...this.#chunks.chunks])
      if (used < since && !this.#held.has(hash)) await this.#chunks.remove(hash)
  }

  /** @internal One caller at a time for a name. */
  async inTurn<T>(name: string, act: () => Promise<T>): Promise<T> {
    const turn = (this.#turns.get(name) ?? Promise.resolve()).catch(() => {}).then(act)
    this.#turns.set(name, turn)
    try {
      return await turn
    } finally {
      if (this.#turns.get(name) === turn) this.#turns.delete(name)
    }
  }

  /**
   * @internal
   * @throws SparkError ERR_IO where the disk has less
   */
  async expectSpace(bytes: number, what: string): Promise<void> {
    const disk = await statfs(this.folder).catch(() => undefined)
    if (disk === undefined || disk.blocks === 0) return
    const free = disk.bavail * disk.bsize
    if (free < bytes)
      throw fullError(this.folder, `${what} needs ${bytes} bytes, and the disk has ${free} left`)
  }

  /** Waits for what is being written, and lets go of the folder. */
  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    await Promise.allSettled([...this.#writing.values(), ...this.#turns.values()])
    this.#lock.release()
  }

  /** As {@link close}. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #write(hash: string, bytes: Uint8Array): Promise<void> {
    const { byteLength } = bytes
    const freeing = this.#freeing.catch(() => {}).then(() => this.#freeSpace(byteLength))
    this.#freeing = freeing
    await freeing
    try {
      await this.expectSpace(byteLength, 'a chunk')
      await this.#chunks.write(hash, bytes)
    } catch (error) {
      const { code } = (error as { cause?: { code?: string } }).cause ?? {}
      if (code !== 'ENOSPC' && code !== 'EDQUOT') throw error
      throw fullError(this.folder, `a chunk of ${byteLength} bytes does not fit on the disk any more`, error)
    } finally {
      this.#coming -= byteLength
    }
  }

  /** Removes what was not used for longest until so many bytes fit. */
  async #freeSpace(bytes: number): Promise<void> {
    let total = this.bytes + this.#coming
    const oldest = total + bytes > this.#maxBytes ? this.#removable() : []
    for (const item of oldest) {
      if (total + bytes <= this.#maxBytes) break
      await item.remove()
      total -= item.bytes
    }
    if (total + bytes > this.#maxBytes) {
      const numbers = `it may have ${this.#maxBytes} bytes, ${total} are in use, and ${bytes} more are wanted`
      throw new SparkError('ERR_IO', `the store ${this.folder} is full: ${numbers}: raise maxBytes`)
    }
    this.#coming += bytes
  }

  #removable(): { used: number; bytes: number; remove: () => Promise<void> }[] {
    const chunks = [...this.#chunks.chunks]
      .filter(([hash]) => !this.#held.has(hash))
      .map(([hash, { used, bytes }]) => ({ used, bytes, remove: () => this.#chunks.remove(hash) }))
    const isHeld = ({ manifest, chunks }: StoredFile): boolean =>
      [...chunks].some(index => this.#held.has(manifest.chunks[index]!))
    const files = this.files
      .filter(file => file.group !== null && !isHeld(file))
      .map(file => ({ used: file.used, bytes: bytesIn(file), remove: () => this.#files.remove(file) }))
    return [...chunks, ...files].sort((a, b) => a.used - b.used)
  }

  #expectOpen(): void {
    if (this.#closed)
      throw new SparkError('ERR_DISPOSED', `the store ${this.folder} was closed; open it again`)
  }
}

function expectHash(hash: unknown): asserts hash is string {
  if (!isHash(hash)) throw argumentError('hash', 'a SHA-256 in 64 hexadecimal digits', hash)
}

const fullError = (folder: string, what: string, cause?: unknown): SparkError =>
  new SparkError('ERR_IO', `${folder}: ${what}: free some space, or put the store elsewhere`, { cause })

/** Chunks of some ranges of a file that a store does not have. */
export function missingIn(
  store: WeightStore,
  manifest: FileManifest,
  wanted: readonly number[],
): { readonly missing: readonly number[]; readonly bytes: number } {
  const missing = wanted.filter(index => !store.has(manifest.chunks[index]!))
  return { missing, bytes: bytesIn({ manifest, chunks: new Set(missing) }) }
}
