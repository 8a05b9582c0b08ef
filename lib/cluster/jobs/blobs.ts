// blobs.ts: what jobs take and give, by its SHA-256: short ones in the record itself, longer ones in the stores of nodes.
import { SparkError } from '../../core/errors.js'
import { fetchBlob } from '../weights/fetch-chunks.js'
import { hashOf, isHash, maxChunkBytes } from '../weights/manifest.js'
import type { ChunkSource } from '../weights/sources.js'
import type { WeightStore } from '../weights/weight-store.js'
import { type JobValue, pack, unpack } from './pack.js'

/** Bytes up to which a value lies in the record: in base64 it fits in a question over a link. */
const inlineBytes = 32 << 10

/** A value, or where it is: in the record, or in the store of a node. */
export type PackedValue = {
  /** SHA-256 of its bytes in hexadecimal digits. */
  readonly hash: string
  /** How many it has. */
  readonly bytes: number
  /** The bytes in base64, where they are few. */
  readonly inline?: string
}

/** Where long values are kept, and from whom else they come. */
export interface JobBlobs {
  /** Of this node. */
  readonly store: WeightStore
  /** The other nodes at present. */
  readonly sources: () => readonly ChunkSource[]
}

/**
 * Packs a value; a long one is in the store when this resolves.
 * @throws SparkError ERR_ARGUMENT for what cannot travel; ERR_RANGE for one that is too long, or long where there is no store
 */
export async function packValue(value: JobValue, blobs: JobBlobs | undefined): Promise<PackedValue> {
  const bytes = pack(value)
  const reference = { hash: await hashOf(bytes), bytes: bytes.length }
  if (bytes.length <= inlineBytes) return { ...reference, inline: bytes.toString('base64') }
  const most = blobs ? maxChunkBytes : inlineBytes
  if (bytes.length > most) {
    const remedy = blobs ? 'make the batches smaller' : 'make the batches smaller, or give a store'
    throw new SparkError('ERR_RANGE', `a value of a job has ${bytes.length} bytes of ${most}: ${remedy}`)
  }
  await blobs!.store.write(reference.hash, bytes)
  return reference
}

/** Milliseconds in which a node says whether it has a value. */
const haveMs = 10_000

/**
 * The value of a record.
 * @throws SparkError ERR_FORMAT for bytes that are not those of the hash; ERR_IO where no node has them
 */
export async function unpackValue(
  packed: PackedValue,
  blobs: JobBlobs | undefined,
  signal?: AbortSignal,
): Promise<JobValue> {
  return unpack(await fetchValue(packed, blobs, signal))
}

/** The bytes of {@link unpackValue}; long ones are in the store of this node when this resolves. */
export async function fetchValue(
  { hash, bytes, inline }: PackedValue,
  blobs: JobBlobs | undefined,
  signal?: AbortSignal,
): Promise<Uint8Array> {
  if (inline !== undefined) {
    const found = Buffer.from(inline, 'base64')
    if ((await hashOf(found)) !== hash)
      throw new SparkError('ERR_FORMAT', `a value of a job does not have the SHA-256 ${hash}`)
    return found
  }
  if (!blobs)
    throw new SparkError('ERR_IO', `a value of ${bytes} bytes is in the store of a node; give a store`)
  return fetchBlob({ hash, bytes }, blobs.sources(), blobs.store, { ...(signal && { signal }) })
}

/** Whether no node has the bytes of a value any more. */
export async function isLost(
  { hash, inline }: PackedValue,
  { store, sources }: JobBlobs,
  signal: AbortSignal,
): Promise<boolean> {
  if (inline !== undefined || store.has(hash)) return false
  const limit = AbortSignal.any([signal, AbortSignal.timeout(haveMs)])
  const asked = sources().map(source => source.have([hash], limit).catch(() => [false]))
  return !(await Promise.all(asked)).some(([has]) => has === true)
}

/** Whether a record of the control plane has the form of a packed value. */
export function isPacked(value: unknown): value is PackedValue {
  const { hash, bytes, inline } = (value ?? {}) as Partial<PackedValue>
  const isLength = Number.isSafeInteger(bytes) && bytes! >= 0 && bytes! <= maxChunkBytes
  return isHash(hash) && isLength && (inline === undefined || typeof inline === 'string')
}
