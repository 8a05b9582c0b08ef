// unified-buffer.ts: memory shared by JavaScript, CPU kernels and the GPU.
import { constants } from 'node:buffer'
import {
  argumentError,
  expectAttached,
  expectInteger,
  expectKnownOptions,
  expectOneOf,
} from '../core/checks.js'
import { getConfig } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { warnOnce } from '../core/log.js'
import { cudaDevice, expectGpuSelector, type GpuSelector } from '../hardware/cuda-device.js'
import { type Allocation, type MemoryHandle, requireAddon } from '../native.js'

/**
 * Kinds of memory: `managed` has one address for CPU and GPU, `pinned` is page-locked host memory that the GPU reads
 * in place, `host` is ordinary memory.
 */
export type MemoryKind = 'managed' | 'pinned' | 'host'

/** Options of {@link UnifiedBuffer.allocate}. */
export interface AllocateOptions {
  /** GPU the memory is for. Default: the best one. */
  device?: GpuSelector | undefined
  /**
   * Default `auto`: managed where the device has it, else pinned, and host memory without a CUDA device or with
   * DGX_SPARK_UNIFIED_MEMORY=0. An explicit kind is given or refused, never replaced.
   */
  kind?: 'auto' | MemoryKind
  /** Whether the memory starts as zeros. Default true; host memory always does. */
  zeroed?: boolean
}

/** Options of {@link UnifiedBuffer.copyTo}, in bytes. */
export interface CopyOptions {
  /** First byte that is read. Default 0. */
  sourceOffset?: number
  /** First byte that is written. Default 0. */
  targetOffset?: number
  /** Number of bytes. Default: all from `sourceOffset` on. */
  bytes?: number
}

/** Hints of {@link UnifiedBuffer.advise}, by the names of the CUDA driver. */
export type MemoryAdvice =
  | 'readMostly'
  | 'notReadMostly'
  | 'preferredLocation'
  | 'noPreferredLocation'
  | 'accessedBy'
  | 'notAccessedBy'

/** The result of {@link UnifiedBuffer.stats}. */
export interface MemoryStats {
  /** Blocks alive in this process, those of workers included. */
  readonly blocks: number
  /** Their bytes by kind; `device` is memory that only the GPU reaches. */
  readonly bytes: Readonly<Record<MemoryKind | 'device', number>>
  /** The most bytes that were alive at once. */
  readonly peakBytes: number
}

/** An array of numbers over an ArrayBuffer. */
export type TypedArray =
  | Int8Array
  | Uint8Array
  | Uint8ClampedArray
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array

/** A class of typed arrays, for example Float32Array. */
export interface TypedArrayConstructor<T extends TypedArray> {
  /** Bytes of an element. */
  readonly BYTES_PER_ELEMENT: number
  /** Name of the class. */
  readonly name: string
  new (buffer: ArrayBuffer, byteOffset: number, length: number): T
}

// CUmem_advise
const adviceNumbers: Readonly<Record<MemoryAdvice, number>> = {
  readMostly: 1,
  notReadMostly: 2,
  preferredLocation: 3,
  noPreferredLocation: 4,
  accessedBy: 5,
  notAccessedBy: 6,
}
const kinds = ['auto', 'managed', 'pinned', 'host'] as const
const processors = ['cpu', 'gpu'] as const

const bytesOf = (view: ArrayBufferView): Uint8Array =>
  new Uint8Array(view.buffer, view.byteOffset, view.byteLength)

/**
 * Memory that JavaScript sees as typed arrays and kernels use where it is. It is freed by {@link dispose} (or
 * `using`), at once; without that, when the buffer and all its views have been collected, which a loop that never
 * returns to the event loop does not see happen. Not thread-safe: keep your hands off operands until a kernel's promise
 * settles.
 * @example
 * const buffer = await UnifiedBuffer.allocate(1 << 20)
 * const x = buffer.view(Float32Array)
 * x.fill(1)
 * buffer.dispose()
 */
export class UnifiedBuffer {
  /** Size in bytes. */
  readonly bytes: number
  /** Kind of memory. */
  readonly kind: MemoryKind
  /**
   * Whether views work and the GPU, if there is one, uses the memory where it is. When false a SPARK_NO_ZERO_COPY
   * warning was emitted once, and {@link read}, {@link write} and kernel calls copy.
   */
  readonly zeroCopy: boolean
  readonly #handle: MemoryHandle
  #whole: ArrayBuffer | undefined
  #disposed = false

  private constructor(bytes: number, allocation: Allocation) {
    this.bytes = bytes
    this.kind = allocation.kind
    this.#handle = allocation.handle
    const views = requireAddon().externalBuffers()
    const shared = !allocation.cuda || allocation.kind !== 'host'
    this.zeroCopy = views && shared
    if (!views) {
      warnOnce(
        'SPARK_NO_ZERO_COPY',
        'views',
        'This runtime refuses ArrayBuffers over native memory (Electron does): UnifiedBuffer.view() throws, ' +
          'read() and write() copy.',
      )
    } else if (!shared) {
      warnOnce(
        'SPARK_NO_ZERO_COPY',
        'unified',
        'Unified memory is off (DGX_SPARK_UNIFIED_MEMORY=0): operands of GPU kernels are copied in each call.',
      )
    }
  }

  /**
   * Allocates memory; the first use of a CUDA device opens it, off the JavaScript thread.
   * @param bytes - size, at least 1
   * @param options - kind of memory, device
   * @throws SparkError ERR_OUT_OF_MEMORY when it cannot fit, with how much is free; ERR_ARGUMENT; ERR_NO_CUDA for a kind
   * that needs a device where there is none; ERR_DISABLED for one while DGX_SPARK_ENABLED=0; ERR_UNSUPPORTED for
   * managed memory on a device without it; ERR_CUDA; ERR_NO_NATIVE
   */
  static async allocate(bytes: number, options: AllocateOptions = {}): Promise<UnifiedBuffer> {
    expectInteger('bytes', bytes, 1)
    expectKnownOptions('UnifiedBuffer.allocate', options, ['device', 'kind', 'zeroed'])
    const { device, kind = 'auto', zeroed = true } = options
    expectGpuSelector('device', device)
    expectOneOf('kind', kind, kinds)
    const { enabled, unifiedMemory } = getConfig()
    if (!enabled && (kind === 'managed' || kind === 'pinned')) {
      throw new SparkError(
        'ERR_DISABLED',
        `${kind} memory needs a GPU and NVIDIA GPUs are disabled; use kind 'host' or remove DGX_SPARK_ENABLED=0`,
      )
    }
    const wanted = kind === 'auto' && !enabled ? 'host' : kind
    const addon = requireAddon()
    const ordinal = wanted === 'host' ? 0 : await cudaDevice(device)
    const request = { bytes, kind: wanted, device: ordinal, zeroed, unified: unifiedMemory }
    return new UnifiedBuffer(bytes, await addon.allocate(request))
  }

  /**
   * Allocates zero-filled host memory at once. No device is opened; a GPU kernel copies such operands unless the device
   * reads ordinary memory.
   * @param bytes - size, at least 1
   * @throws SparkError ERR_OUT_OF_MEMORY when it cannot fit, with how much is free; ERR_ARGUMENT; ERR_NO_NATIVE
   */
  static allocateSync(bytes: number): UnifiedBuffer {
    expectInteger('bytes', bytes, 1)
    return new UnifiedBuffer(bytes, requireAddon().allocateHost(bytes))
  }

  /**
   * Statistics of the memory that this process has allocated.
   * @throws SparkError ERR_NO_NATIVE
   */
  static stats(): MemoryStats {
    const { blocks, peak, ...bytes } = requireAddon().memoryStats()
    return { blocks, bytes, peakBytes: peak }
  }

  /** Whether {@link dispose} was called. */
  get disposed(): boolean {
    return this.#disposed
  }

  /**
   * A typed array over the memory itself. It has length 0 after {@link dispose}.
   * @param type - class of the array, for example Float32Array
   * @param byteOffset - where it starts, a multiple of the element size. Default 0
   * @param length - elements; default: to the end. At most `buffer.constants.MAX_LENGTH` bytes at a time; the rest of a
   * larger buffer is reached by `byteOffset`
   * @throws SparkError ERR_RANGE, ERR_ARGUMENT, ERR_DISPOSED; ERR_NO_ZERO_COPY where the runtime refuses external memory
   */
  view<T extends TypedArray>(type: TypedArrayConstructor<T>, byteOffset = 0, length?: number): T {
    const handle = this.#live('view')
    const size = type?.BYTES_PER_ELEMENT
    if (typeof type !== 'function' || !Number.isInteger(size))
      throw argumentError('type', 'a typed array class such as Float32Array', type)
    expectInteger('byteOffset', byteOffset, 0)
    if (byteOffset % size !== 0) {
      throw new SparkError(
        'ERR_RANGE',
        `byteOffset is ${byteOffset}; ${type.name} needs a multiple of ${size}`,
      )
    }
    const count = length ?? Math.floor(Math.max(0, this.bytes - byteOffset) / size)
    expectInteger('length', count, 0)
    const bytes = count * size
    this.#expectRange('view', byteOffset, bytes)
    if (bytes > constants.MAX_LENGTH) {
      throw new SparkError(
        'ERR_RANGE',
        `a view of ${bytes} bytes exceeds this runtime's limit of ${constants.MAX_LENGTH}; ` +
          'view a part of the buffer by byteOffset and length',
      )
    }
    if (this.bytes > constants.MAX_LENGTH) return new type(this.#window(handle, byteOffset, bytes), 0, count)
    if (!this.#whole?.byteLength) this.#whole = this.#window(handle, 0, this.bytes)
    return new type(this.#whole, byteOffset, count)
  }

  /**
   * Copies bytes out of the buffer until `target` is full.
   * @param target - where they go
   * @param byteOffset - where to start reading. Default 0
   * @throws SparkError ERR_RANGE, ERR_ARGUMENT, ERR_DISPOSED
   */
  read(target: ArrayBufferView, byteOffset = 0): void {
    const handle = this.#live('read')
    this.#expectSpan('target', target, byteOffset)
    requireAddon().read(handle, byteOffset, bytesOf(target))
  }

  /**
   * Copies all of `source` into the buffer.
   * @param source - what is copied
   * @param byteOffset - where to start writing. Default 0
   * @throws SparkError ERR_RANGE, ERR_ARGUMENT, ERR_DISPOSED
   */
  write(source: ArrayBufferView, byteOffset = 0): void {
    const handle = this.#live('write')
    this.#expectSpan('source', source, byteOffset)
    requireAddon().write(handle, byteOffset, bytesOf(source))
  }

  /**
   * Copies bytes to another buffer, or within this one (the ranges may overlap).
   * @param target - the other buffer
   * @param options - which bytes
   * @throws SparkError ERR_RANGE, ERR_ARGUMENT, ERR_DISPOSED
   */
  copyTo(target: UnifiedBuffer, options: CopyOptions = {}): void {
    const handle = this.#live('copyTo')
    if (!(target instanceof UnifiedBuffer)) throw argumentError('target', 'a UnifiedBuffer', target)
    expectKnownOptions('UnifiedBuffer.copyTo', options, ['sourceOffset', 'targetOffset', 'bytes'])
    const { sourceOffset = 0, targetOffset = 0 } = options
    expectInteger('sourceOffset', sourceOffset, 0)
    expectInteger('targetOffset', targetOffset, 0)
    const bytes = options.bytes ?? Math.max(0, this.bytes - sourceOffset)
    expectInteger('bytes', bytes, 0)
    this.#expectRange('source', sourceOffset, bytes)
    target.#expectRange('target', targetOffset, bytes)
    requireAddon().copy(handle, sourceOffset, target.#live('copyTo'), targetOffset, bytes)
  }

  /**
   * Asks the driver to move managed memory before it is used; does not wait.
   * @param processor - the next user
   * @returns false where there is nothing to move: other kinds of memory, drivers before CUDA 12.2
   * @throws SparkError ERR_ARGUMENT, ERR_CUDA, ERR_DISPOSED
   */
  prefetch(processor: 'cpu' | 'gpu'): boolean {
    const handle = this.#live('prefetch')
    expectOneOf('processor', processor, processors)
    return requireAddon().prefetch(handle, processor === 'gpu')
  }

  /**
   * Tells the driver how managed memory will be used.
   * @param advice - the hint
   * @param processor - the processor that the hint is for. Default `gpu`
   * @returns false where hints do not apply: other kinds of memory, drivers before CUDA 12.2
   * @throws SparkError ERR_ARGUMENT, ERR_CUDA, ERR_DISPOSED
   */
  advise(advice: MemoryAdvice, processor: 'cpu' | 'gpu' = 'gpu'): boolean {
    const handle = this.#live('advise')
    expectOneOf('advice', advice, Object.keys(adviceNumbers) as MemoryAdvice[])
    expectOneOf('processor', processor, processors)
    return requireAddon().advise(handle, adviceNumbers[advice], processor === 'gpu')
  }

  /**
   * Frees the memory; views become empty. A kernel that still uses it keeps it until it is done. A second call does
   * nothing.
   */
  dispose(): void {
    if (this.#disposed) return
    this.#disposed = true
    requireAddon().dispose(this.#handle) // detaches #whole, which must not be collected before
    this.#whole = undefined
  }

  /** {@link dispose}, for `using`. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  #live(method: string): MemoryHandle {
    if (!this.#disposed) return this.#handle
    throw new SparkError(
      'ERR_DISPOSED',
      `UnifiedBuffer.${method}: the buffer of ${this.bytes} bytes is disposed`,
    )
  }

  #expectRange(what: string, byteOffset: number, bytes: number): void {
    if (byteOffset + bytes <= this.bytes) return
    throw new SparkError(
      'ERR_RANGE',
      `${what}: ${bytes} bytes at byteOffset ${byteOffset} do not lie in a buffer of ${this.bytes} bytes`,
    )
  }

  #expectSpan(name: string, view: ArrayBufferView, byteOffset: number): void {
    if (!ArrayBuffer.isView(view)) throw argumentError(name, 'a typed array or DataView', view)
    expectAttached(name, view)
    expectInteger('byteOffset', byteOffset, 0)
    this.#expectRange(name, byteOffset, view.byteLength)
  }

  #window(handle: MemoryHandle, byteOffset: number, bytes: number): ArrayBuffer {
    const buffer = requireAddon().view(handle, byteOffset, bytes)
    if (buffer) return buffer
    throw new SparkError(
      'ERR_NO_ZERO_COPY',
      'this runtime refuses ArrayBuffers over native memory (Electron does); use read() and write()',
    )
  }
}
