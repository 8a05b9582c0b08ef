// device-memory.ts: memory of a backend with counted owners, and a ledger that knows what was never freed.
import { expectInteger } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { UnifiedBuffer } from '../../memory/unified-buffer.js'

/** Memory that a backend computes on. */
export type Storage = Pick<UnifiedBuffer, 'bytes' | 'read' | 'write' | 'dispose'>

/** Memory of the JavaScript heap, for backends that take arrays only. */
export class HeapStorage implements Storage {
  readonly bytes: number
  #memory: Uint8Array

  /** @throws SparkError ERR_OUT_OF_MEMORY */
  constructor(bytes: number) {
    this.bytes = bytes
    try {
      this.#memory = new Uint8Array(bytes)
    } catch (cause) {
      throw new SparkError('ERR_OUT_OF_MEMORY', `no memory for ${bytes} bytes`, { cause })
    }
  }

  read(target: ArrayBufferView, byteOffset = 0): void {
    const { buffer, byteOffset: at, byteLength } = target
    new Uint8Array(buffer, at, byteLength).set(this.#memory.subarray(byteOffset, byteOffset + byteLength))
  }

  write(source: ArrayBufferView, byteOffset = 0): void {
    this.#memory.set(new Uint8Array(source.buffer, source.byteOffset, source.byteLength), byteOffset)
  }

  dispose(): void {
    this.#memory = new Uint8Array(0)
  }
}

/** Memory that was not freed. */
export interface Leak {
  /** What it was allocated for. */
  readonly label: string
  /** Its size. */
  readonly bytes: number
  /** Owners that it still has. */
  readonly owners: number
}

/** A block of memory of a backend. It is freed when its last owner has released it. */
export class DeviceBuffer {
  /** What it was allocated for. */
  readonly label: string
  /** Size in bytes. */
  readonly bytes: number
  readonly #storage: Storage
  readonly #onFree: (buffer: DeviceBuffer) => void
  #owners = 1

  /** @internal */
  constructor(label: string, storage: Storage, onFree: (buffer: DeviceBuffer) => void) {
    this.label = label
    this.bytes = storage.bytes
    this.#storage = storage
    this.#onFree = onFree
  }

  /** How many owners it has; 0: it is freed. */
  get owners(): number {
    return this.#owners
  }

  /**
   * Adds an owner, who releases it in turn.
   * @throws SparkError ERR_DISPOSED when it is freed
   */
  retain(): this {
    this.storage('retain')
    this.#owners++
    return this
  }

  /**
   * Takes an owner away; the last one frees the memory.
   * @throws SparkError ERR_DISPOSED when it is freed already
   */
  release(): void {
    this.storage('release')
    this.#owners--
    if (this.#owners > 0) return
    this.#storage.dispose()
    this.#onFree(this)
  }

  /**
   * Where the memory is.
   * @internal
   * @throws SparkError ERR_DISPOSED when it is freed
   */
  storage(use: string): Storage {
    if (this.#owners > 0) return this.#storage
    throw new SparkError('ERR_DISPOSED', `${use}: the buffer '${this.label}' of ${this.bytes} bytes is freed`)
  }
}

/** The buffers of a backend. */
export class MemoryLedger {
  readonly #live = new Set<DeviceBuffer>()
  #peak = 0

  /** Bytes that are allocated. */
  get bytes(): number {
    return [...this.#live].reduce((sum, buffer) => sum + buffer.bytes, 0)
  }

  /** The most bytes that were allocated at once. */
  get peak(): number {
    return this.#peak
  }

  /** Notes a block of memory. */
  add(label: string, storage: Storage): DeviceBuffer {
    const buffer = new DeviceBuffer(label, storage, freed => this.#live.delete(freed))
    this.#live.add(buffer)
    this.#peak = Math.max(this.#peak, this.bytes)
    return buffer
  }

  /** Whether a buffer is of this backend. */
  has(buffer: DeviceBuffer): boolean {
    return this.#live.has(buffer)
  }

  /** Frees everything. @returns what its owners did not */
  close(): Leak[] {
    const leaks = [...this.#live].map(({ label, bytes, owners }) => ({ label, bytes, owners }))
    for (const buffer of [...this.#live]) while (buffer.owners > 0) buffer.release()
    return leaks
  }
}

/** Bytes that are copied between two turns of the event loop. */
export const pieceBytes = 2 ** 22

/**
 * Throws ERR_RANGE unless bytes lie in a buffer.
 * @param name - of the offset in errors
 */
export function expectSpan(name: string, buffer: DeviceBuffer, byteOffset: number, bytes: number): void {
  expectInteger(name, byteOffset, 0)
  if (byteOffset + bytes <= buffer.bytes) return
  const text = `${name} is ${byteOffset}: ${bytes} bytes from there do not lie in '${buffer.label}' of ${buffer.bytes} bytes`
  throw new SparkError('ERR_RANGE', text)
}

/** Copies between two places of one backend, piece by piece; `turn` is called between them. */
export async function copyStorage(
  source: Storage,
  sourceOffset: number,
  target: Storage,
  targetOffset: number,
  bytes: number,
  turn: () => Promise<void>,
): Promise<void> {
  if (source instanceof UnifiedBuffer && target instanceof UnifiedBuffer) {
    source.copyTo(target, { sourceOffset, targetOffset, bytes })
    return
  }
  // As memmove: a whole copy where the ranges may overlap.
  const step = source === target ? bytes : Math.min(bytes, pieceBytes)
  const piece = new Uint8Array(step)
  for (let done = 0; done < bytes; done += step) {
    const part = piece.subarray(0, Math.min(step, bytes - done))
    source.read(part, sourceOffset + done)
    target.write(part, targetOffset + done)
    await turn()
  }
}
