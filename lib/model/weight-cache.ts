// weight-cache.ts: packed weights on the disk, for later processes that load the same file.
import { readdir, rm, stat, utimes } from 'node:fs/promises'
import path from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import { crc32 } from 'node:zlib'
import { argumentError, expectInteger, expectKnownOptions } from '../core/checks.js'
import { getConfig } from '../core/config.js'
import { debug, warnOnce } from '../core/log.js'
import type { Pacer } from '../core/paced.js'
import { packageVersion } from '../core/version.js'
import { nameContents } from '../graph/content-names.js'
import type { Graph } from '../graph/graph.js'
import { makeFolder, writeFileAtomic } from '../io/atomic-write.js'
import { contentHash, digest, fileIdentity } from '../io/content-hash.js'
import { fill, openFile } from '../io/read-file.js'
import { cacheFile } from '../io/user-cache.js'
import { loadAddon } from '../native.js'
import type { FoldedStore } from '../plan/bind.js'

/** Settings of {@link EngineOptions.weightCache}. */
export interface WeightCacheOptions {
  /** The folder. Default: `dgx-spark/weights` in the user's cache. */
  folder?: string
  /** Bytes that it may grow to; what was not used for the longest time goes then. Default: 16 GiB. */
  maxBytes?: number
}

/** First bytes of a file of the cache, with the version of its layout. */
const magic = 'DSPARKW1'

/** Bytes before the elements: magic, length, checksum of the elements. */
const headerBytes = 64

/** Bytes that are read and checked between two turns of the event loop. */
const pieceBytes = 2 ** 23

/** Weights of fewer bytes are packed faster than they are found. */
const smallWeight = 2 ** 16

/** Milliseconds after which the file of a writer that was killed is removed. */
const abandonedAfter = 3_600_000

/** Weights by what they are packed from, and for which instruction set by which version. Damaged files count as missing. */
export class WeightCache implements FoldedStore {
  readonly #folder: string
  readonly #maxBytes: number
  readonly #maker: string
  /** Settles when all has been written. */
  #written: Promise<void> = Promise.resolve()

  private constructor(folder: string, maxBytes: number, maker: string) {
    this.#folder = folder
    this.#maxBytes = maxBytes
    this.#maker = maker
  }

  /**
   * The cache that an option asks for, or DGX_SPARK_WEIGHT_CACHE when it is left out; undefined where none is wanted.
   * @throws SparkError ERR_ARGUMENT
   */
  static async open(option: boolean | WeightCacheOptions | undefined): Promise<WeightCache | undefined> {
    const { weightCache } = getConfig()
    const wanted = option ?? (weightCache === null ? false : { folder: weightCache })
    if (wanted === false) return undefined
    if (wanted !== true && (typeof wanted !== 'object' || wanted === null))
      throw argumentError('options.weightCache', 'true, false, or { folder, maxBytes }', wanted)
    const settings = wanted === true ? {} : wanted
    expectKnownOptions('options.weightCache', settings, ['folder', 'maxBytes'])
    const { folder = cacheFile('weights') ?? '', maxBytes = 2 ** 34 } = settings
    if (typeof folder !== 'string' || folder === '')
      throw argumentError('options.weightCache.folder', 'the path of a folder', folder)
    expectInteger('options.weightCache.maxBytes', maxBytes, 0)
    const maker = await makerOf()
    return maker === undefined ? undefined : new WeightCache(path.resolve(folder), maxBytes, maker)
  }

  /** Lets weights of a graph be found again by later processes that read the same file. */
  async identify(file: string, identity: string, graph: Graph, pacer: Pacer): Promise<void> {
    try {
      const hash = await contentHash(file, identity, path.join(this.#folder, 'hashes'), pacer)
      if ((await fileIdentity(file)) === identity) nameContents(graph, hash)
    } catch (error) {
      pacer.signal?.throwIfAborted()
      this.#complain(error)
    }
  }

  async read(key: string, bytes: Uint8Array): Promise<boolean> {
    if (bytes.byteLength < smallWeight) return false
    const file = this.#fileOf(key)
    const found = await stat(file).catch(() => undefined)
    if (!found) return false
    const isSound = await readChecked(file, bytes).catch(() => false)
    if (!isSound) {
      debug(`${file} is damaged, and is removed`)
      await rm(file, { force: true }).catch(() => undefined)
      return false
    }
    const now = new Date()
    await utimes(file, now, now).catch(() => undefined)
    return true
  }

  write(key: string, bytes: Uint8Array): void {
    if (bytes.byteLength < smallWeight) return
    this.#written = this.#written.then(async () => {
      try {
        await makeFolder(path.join(this.#folder, 'packed'))
        const header = headerFor(bytes.byteLength, await checksumOf(bytes, () => turn()))
        await writeFileAtomic(this.#fileOf(key), [header, bytes])
        await this.#shrink()
      } catch (error) {
        this.#complain(error)
      }
    })
  }

  #fileOf(key: string): string {
    return path.join(this.#folder, 'packed', digest(`${this.#maker} ${key}`))
  }

  /** Removes what was not used for the longest time, and what writers have left behind. */
  async #shrink(): Promise<void> {
    const folder = path.join(this.#folder, 'packed')
    const files = (await readdir(folder)).map(name => path.join(folder, name))
    const found = await Promise.all(
      files.map(async file => ({ file, stats: await stat(file).catch(() => null) })),
    )
    const known = found.flatMap(({ file, stats }) =>
      stats ? [{ file, bytes: stats.size, used: stats.mtimeMs }] : [],
    )
    const isWhole = ({ file }: { file: string }): boolean => /^[0-9a-f]{64}$/.test(path.basename(file))
    let total = 0
    for (const entry of known.sort((a, b) => b.used - a.used)) {
      if (isWhole(entry)) total += entry.bytes
      const isAbandoned = !isWhole(entry) && Date.now() - entry.used > abandonedAfter
      if (isAbandoned || (isWhole(entry) && total > this.#maxBytes)) await rm(entry.file, { force: true })
    }
  }

  #complain(error: unknown): void {
    const why = (error as Error).message
    warnOnce('SPARK_WEIGHT_CACHE', this.#folder, `Packed weights are not kept in ${this.#folder}: ${why}`)
  }
}

/** What packs weights here: weights of another one may lie otherwise. Undefined without the addon, which packs none. */
async function makerOf(): Promise<string | undefined> {
  const { addon, path: file } = { path: '', ...loadAddon() }
  if (!addon) return undefined
  // A build of the same version that has changed has another time.
  const { size, mtimeMs } = await stat(file)
  return [packageVersion(), size, mtimeMs, process.arch, addon.cpuIsa()].join(' ')
}

/** What is before the elements of a file. */
function headerFor(byteLength: number, checksum: number): Buffer {
  const header = Buffer.alloc(headerBytes)
  header.write(magic, 'latin1')
  header.writeBigUInt64LE(BigInt(byteLength), magic.length)
  header.writeUInt32LE(checksum, magic.length + 8)
  return header
}

/** The checksum of bytes; each piece is there when `arrived` has settled. */
async function checksumOf(
  bytes: Uint8Array,
  arrived: (piece: Uint8Array, at: number) => Promise<void>,
): Promise<number> {
  let sum = 0
  for (let at = 0; at < bytes.byteLength; at += pieceBytes) {
    const piece = bytes.subarray(at, at + pieceBytes)
    await arrived(piece, at)
    sum = crc32(piece, sum)
  }
  return sum
}

/** Reads the elements of a file; whether they are what was written. */
async function readChecked(file: string, bytes: Uint8Array): Promise<boolean> {
  const handle = await openFile(file)
  try {
    const header = Buffer.alloc(headerBytes)
    const { size } = await handle.stat()
    if (size !== headerBytes + bytes.byteLength) return false
    await fill(handle, file, header, 0)
    const sum = await checksumOf(bytes, (piece, at) => fill(handle, file, piece, headerBytes + at))
    return header.equals(headerFor(bytes.byteLength, sum))
  } finally {
    await handle.close()
  }
}
