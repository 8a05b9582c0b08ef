// fetch-chunks.ts: missing chunks of a file into a store.
import { expectInteger } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { ChunkTransfer, type SourceReport } from './chunk-transfer.js'
import { chunksIn, type FileManifest, maxChunkBytes, parseManifest } from './manifest.js'
import type { ChunkSource } from './sources.js'
import { bytesIn } from './stored-files.js'
import { missingIn, type WeightStore } from './weight-store.js'

/** How far a file is. */
export interface FetchProgress {
  /** Its name in the manifest. */
  readonly file: string
  /** The device that it is for, as in the options. */
  readonly device: string | undefined
  /** Verified bytes that are on the disk, those that were there before included. */
  readonly bytes: number
  /** Bytes that are wanted, in whole chunks. */
  readonly total: number
  /** Bytes per second since the transfer began. */
  readonly rate: number
}

/** How often damaged chunks are fetched anew. */
export const attempts = 3

/** How chunks are fetched. */
export interface FetchChunksOptions {
  /** Milliseconds in which a chunk must arrive, or its source is dropped. Default 30,000. */
  readonly stallMs?: number
  /** Named in the progress. */
  readonly device?: string
  /** Ends it; what was verified stays for the next time. */
  readonly signal?: AbortSignal
  /** Told of each chunk. */
  readonly onProgress?: (progress: FetchProgress) => void
}

/**
 * Fetches those of the wanted chunks that the store lacks.
 * @throws SparkError ERR_IO; the reason of the signal
 */
export async function fetchChunks(
  manifest: FileManifest,
  wanted: readonly number[],
  sources: readonly ChunkSource[],
  store: WeightStore,
  options: FetchChunksOptions,
): Promise<SourceReport[]> {
  const { signal, stallMs = 30_000, onProgress, device } = options
  const total = bytesIn({ manifest, chunks: new Set(wanted) })
  const { missing, bytes: lacking } = missingIn(store, manifest, wanted)
  // The chunks, and the file that is made of them.
  if (lacking > 0) await store.expectSpace(lacking + total, `fetching ${manifest.name}`)
  const began = performance.now()
  let got = 0
  const tell = (): void => {
    const rate = got === 0 ? 0 : (got * 1000) / Math.max(1, performance.now() - began)
    onProgress?.({ file: manifest.name, device, bytes: total - lacking + got, total, rate })
  }
  tell()
  const transfer = new ChunkTransfer(manifest, missing, sources, store, {
    stallMs,
    signal,
    onChunk: bytes => {
      got += bytes
      tell()
    },
  })
  await transfer.run()
  return transfer.reports
}

/** Something that is one chunk, such as a result or a manifest: its hash and length. */
export interface BlobReference {
  /** Its SHA-256 in hexadecimal digits. */
  readonly hash: string
  /** How many it has. */
  readonly bytes: number
}

/**
 * One chunk by its reference, from the store or else from the sources one after the other; it is kept in the store.
 * @throws SparkError ERR_IO where nobody has it; the reason of the signal
 */
export async function fetchBlob(
  reference: BlobReference,
  sources: readonly ChunkSource[],
  store: WeightStore,
  options: Pick<FetchChunksOptions, 'signal' | 'stallMs'> = {},
): Promise<Uint8Array> {
  const { hash, bytes } = reference
  expectInteger('reference.bytes', bytes, 0, maxChunkBytes)
  const chunkBytes = Math.max(4096, Math.ceil(bytes / 4096) * 4096)
  const manifest = parseManifest({ name: hash, bytes, chunkBytes, chunks: bytes === 0 ? [] : [hash] })
  using _held = store.hold([hash])
  for (let left = attempts; left > 0; left--) {
    const there = await store.read(hash)
    if (there) return there
    await fetchChunks(manifest, chunksIn(manifest, undefined), sources, store, options)
  }
  throw new SparkError('ERR_IO', `chunk ${hash} is damaged whenever it is read: check the disk`)
}
