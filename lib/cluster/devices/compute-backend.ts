// compute-backend.ts: the interface of what computes on a device: memory with owners, transfers, fences, tasks. All backends run
// models of this library's graph, with its own kernels or in ONNX Runtime, and have everything else in common.
import { expectInteger, expectKnownOptions, expectSignal } from '../../core/checks.js'
import { type ElementType, elementArrayOf, elementBits, type TypedArrayOf } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import type { Graph } from '../../graph/graph.js'
import { Tensor } from '../../memory/tensor.js'
import { UnifiedBuffer } from '../../memory/unified-buffer.js'
import type { Feed } from '../../model/feeds.js'
import { Model } from '../../model/model.js'
import type { ModelOptions } from '../../model/model-options.js'
import type { ModelOutput } from '../../model/results.js'
import {
  copyStorage,
  DeviceBuffer,
  expectSpan,
  type Leak,
  MemoryLedger,
  pieceBytes,
  type Storage,
} from './device-memory.js'
import type { DeviceBackendName } from './device-record.js'
import type { PressureGate } from './pressure-gate.js'

/** Names of backends; `onnxruntime` is its CPU provider, for comparisons. */
export type ComputeBackendName = DeviceBackendName | 'onnxruntime'

/** A tensor in memory of a backend. */
export interface DeviceTensor {
  /** The memory. */
  readonly buffer: DeviceBuffer
  /** Of its elements. */
  readonly dtype: Exclude<ElementType, 'string'>
  /** Sizes of its dimensions. */
  readonly shape: readonly number[]
  /** Where it begins in the buffer. Default: 0. */
  readonly byteOffset?: number
}

/** What a task runs on: values of the caller, or tensors in memory of the backend. */
export type TaskFeeds = Readonly<Record<string, Feed | DeviceTensor>>

/** Work for a backend: a graph, and what it runs on, one after the other. */
export interface ComputeTask {
  /** It is compiled once for each backend. */
  readonly graph: Graph
  /** One run each; an endless source is read only as fast as results are taken. */
  readonly feeds: Iterable<TaskFeeds> | AsyncIterable<TaskFeeds>
  /** Names of the outputs that are wanted. Default: all. */
  readonly outputs?: readonly string[]
  /** Ends the task. */
  readonly signal?: AbortSignal
  /** Makes it wait between two runs while its node is under pressure. */
  readonly gate?: PressureGate
}

/** Results of a run, by name. */
export type TaskResult = Record<string, ModelOutput>

/** What a backend has allocated. */
export interface BackendMemory {
  /** Bytes of buffers now. */
  readonly bytes: number
  /** Bytes of buffers at most so far. */
  readonly peak: number
  /** Graphs that are compiled. */
  readonly models: number
}

/** A point in the queue of a backend. */
export interface Fence {
  /** Whether everything before it has ended. */
  readonly isDone: boolean
  /**
   * Waits for it.
   * @throws what went wrong with the transfer that the fence is of
   */
  wait(): Promise<void>
}

/** How a backend opens, and where its memory and its models are. */
export interface BackendDriver {
  readonly name: ComputeBackendName
  /** What it computes on, in words. */
  readonly device: string
  /**
   * Opens the device.
   * @throws SparkError with what is missing
   */
  open(): Promise<void>
  /** Memory, zero-filled. */
  allocate(bytes: number): Promise<Storage>
  /** Where models run. */
  readonly model: Pick<ModelOptions, 'backend' | 'device' | 'provider' | 'threads'>
}

const turn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

/**
 * Computes on a device. Transfers go one after the other in a queue; host memory that one of them reads or writes must not be
 * touched before its fence.
 * @example
 * const { backend } = await selectBackend()
 * const buffer = await backend.allocate(4096, 'input')
 * await backend.upload(new Float32Array(1024), buffer).wait()
 * const x = { buffer, dtype: 'f32', shape: [1024] } as const
 * for await (const { y } of backend.run({ graph, feeds: [{ x }] })) console.log(y)
 * buffer.release()
 * const leaks = await backend.close()
 */
export class ComputeBackend {
  readonly #driver: BackendDriver
  readonly #ledger = new MemoryLedger()
  readonly #models = new Map<Graph, Promise<Model>>()
  #state: 'new' | 'open' | 'closed' = 'new'
  #opening: Promise<void> | undefined
  #initMs: number | undefined
  /** Settles when the queue is empty. */
  #last: Promise<void> = Promise.resolve()
  readonly #runs = new Set<Promise<TaskResult>>()
  readonly #stop = new AbortController()

  /** @internal */
  constructor(driver: BackendDriver) {
    this.#driver = driver
  }

  /** Its name. */
  get name(): ComputeBackendName {
    return this.#driver.name
  }

  /** What it computes on, in words. */
  get device(): string {
    return this.#driver.device
  }

  /** Milliseconds that {@link ComputeBackend.open} took. */
  get initMs(): number | undefined {
    return this.#initMs
  }

  /** What is allocated; models have memory beside that. */
  get memory(): BackendMemory {
    return { bytes: this.#ledger.bytes, peak: this.#ledger.peak, models: this.#models.size }
  }

  /**
   * Opens the device; a second call waits for the first one.
   * @throws SparkError ERR_UNSUPPORTED, ERR_NO_CUDA, ERR_NO_NATIVE and others that say what is missing; ERR_DISPOSED
   */
  open(): Promise<void> {
    if (this.#state === 'closed') return Promise.reject(closed(this.name))
    this.#opening ??= (async () => {
      const start = performance.now()
      await this.#driver.open()
      this.#initMs = performance.now() - start
      if (this.#state === 'new') this.#state = 'open'
    })()
    return this.#opening
  }

  /**
   * Ends tasks, waits for transfers, and frees everything.
   * @returns buffers that their owners have not released; a second call returns none
   */
  async close(): Promise<readonly Leak[]> {
    if (this.#state === 'closed') return []
    this.#state = 'closed'
    this.#stop.abort(closed(this.name))
    await this.#opening?.catch(() => undefined)
    await this.#last
    await Promise.allSettled(this.#runs)
    const models = await Promise.allSettled(this.#models.values())
    for (const model of models) if (model.status === 'fulfilled') model.value.dispose()
    this.#models.clear()
    return this.#ledger.close()
  }

  /**
   * Allocates zero-filled memory with one owner, the caller.
   * @param label - what it is for, which {@link ComputeBackend.close} names when it is not released
   * @throws SparkError ERR_OUT_OF_MEMORY, ERR_ARGUMENT, ERR_DISPOSED
   */
  async allocate(bytes: number, label: string): Promise<DeviceBuffer> {
    expectInteger('bytes', bytes, 1)
    this.#expectOpen()
    const storage = await this.#driver.allocate(bytes)
    if (this.#state === 'open') return this.#ledger.add(label, storage)
    storage.dispose()
    throw closed(this.name)
  }

  /**
   * Copies host memory to a buffer.
   * @throws SparkError ERR_RANGE, ERR_DISPOSED
   */
  upload(source: ArrayBufferView, target: DeviceBuffer, byteOffset = 0): Fence {
    this.#expectOwn(target)
    expectSpan('byteOffset', target, byteOffset, source.byteLength)
    return this.#enqueue([target], () =>
      inPieces(source, (piece, done) => target.storage('upload').write(piece, byteOffset + done)),
    )
  }

  /**
   * Copies a buffer to host memory until `target` is full.
   * @throws SparkError ERR_RANGE, ERR_DISPOSED
   */
  download(source: DeviceBuffer, target: ArrayBufferView, byteOffset = 0): Fence {
    this.#expectOwn(source)
    expectSpan('byteOffset', source, byteOffset, target.byteLength)
    return this.#enqueue([source], () =>
      inPieces(target, (piece, done) => source.storage('download').read(piece, byteOffset + done)),
    )
  }

  /**
   * Copies between buffers of this backend, or within one; ranges may overlap.
   * @throws SparkError ERR_RANGE, ERR_DISPOSED, ERR_ARGUMENT for a buffer of another backend
   */
  copy(
    source: DeviceBuffer,
    target: DeviceBuffer,
    options: { readonly sourceOffset?: number; readonly targetOffset?: number; readonly bytes?: number } = {},
  ): Fence {
    expectKnownOptions('options', options, ['sourceOffset', 'targetOffset', 'bytes'])
    const { sourceOffset = 0, targetOffset = 0, bytes = source.bytes - sourceOffset } = options
    for (const buffer of [source, target]) this.#expectOwn(buffer)
    expectInteger('options.bytes', bytes, 0)
    expectSpan('options.sourceOffset', source, sourceOffset, bytes)
    expectSpan('options.targetOffset', target, targetOffset, bytes)
    return this.#enqueue([source, target], () =>
      copyStorage(source.storage('copy'), sourceOffset, target.storage('copy'), targetOffset, bytes, turn),
    )
  }

  /** A fence behind all transfers that were asked for so far. */
  fence(): Fence {
    return this.#enqueue([], async () => undefined)
  }

  /**
   * Runs a task; results come in the order of the feeds. Leaving the loop ends it.
   * @throws SparkError as `Model.run`; ERR_DISPOSED when the backend is closed; the reason of the signal
   */
  async *run(task: ComputeTask): AsyncGenerator<TaskResult, void, undefined> {
    expectKnownOptions('task', task, ['graph', 'feeds', 'outputs', 'signal', 'gate'])
    expectSignal('task.signal', task.signal)
    this.#expectOpen()
    const { outputs, gate } = task
    const signal = task.signal ? AbortSignal.any([task.signal, this.#stop.signal]) : this.#stop.signal
    signal.throwIfAborted()
    const model = await this.#modelOf(task.graph)
    for await (const feeds of task.feeds) {
      await gate?.pass(signal)
      signal.throwIfAborted()
      const run = this.#runOnce(model, feeds, { signal, ...(outputs && { outputs }) })
      this.#runs.add(run)
      try {
        yield await run
      } finally {
        this.#runs.delete(run)
      }
    }
  }

  /** Frees what tasks make again: bound plans and their memory. Results are the same afterwards. */
  async trim(): Promise<void> {
    const models = await Promise.allSettled(this.#models.values())
    for (const model of models) if (model.status === 'fulfilled') await model.value.trim()
  }

  async #runOnce(
    model: Model,
    feeds: TaskFeeds,
    options: { readonly signal: AbortSignal; readonly outputs?: readonly string[] },
  ): Promise<TaskResult> {
    // What transfers in the queue write must be there.
    await this.#last
    const held: DeviceBuffer[] = []
    try {
      const entries = Object.entries(feeds).map(([name, feed]): [string, Feed] => {
        if (!isDeviceTensor(feed)) return [name, feed]
        this.#expectOwn(feed.buffer)
        held.push(feed.buffer.retain())
        return [name, hostTensorOf(name, feed)]
      })
      return (await model.run(Object.fromEntries(entries), options)) as TaskResult
    } finally {
      for (const buffer of held) buffer.release()
    }
  }

  #modelOf(graph: Graph): Promise<Model> {
    const known = this.#models.get(graph)
    if (known) return known
    const model = Model.fromGraph(graph, this.#driver.model)
    model.catch(() => this.#models.delete(graph))
    this.#models.set(graph, model)
    return model
  }

  #expectOpen(): void {
    if (this.#state === 'closed') throw closed(this.name)
    if (this.#state === 'new')
      throw new SparkError('ERR_ARGUMENT', `the backend '${this.name}' is not open: await open() first`)
  }

  #expectOwn(buffer: DeviceBuffer): void {
    this.#expectOpen()
    buffer.storage('use')
    if (this.#ledger.has(buffer)) return
    throw new SparkError(
      'ERR_ARGUMENT',
      `the buffer '${buffer.label}' is of another backend than this '${this.name}'`,
    )
  }

  /** Does work behind all that was asked for; its buffers stay until it has ended. */
  #enqueue(buffers: readonly DeviceBuffer[], work: () => Promise<void>): Fence {
    this.#expectOpen()
    for (const buffer of buffers) buffer.retain()
    let isDone = false
    const done = this.#last.then(work).finally(() => {
      isDone = true
      for (const buffer of buffers) buffer.release()
    })
    this.#last = done.catch(() => undefined)
    return {
      get isDone() {
        return isDone
      },
      wait: () => done,
    }
  }
}

const closed = (name: string): SparkError => new SparkError('ERR_DISPOSED', `the backend '${name}' is closed`)

/** Hands the bytes of an array over, piece by piece, so that the event loop turns in between. */
async function inPieces(
  array: ArrayBufferView,
  take: (piece: Uint8Array, done: number) => void,
): Promise<void> {
  const { buffer, byteOffset, byteLength } = array
  for (let done = 0; done < byteLength; done += pieceBytes) {
    take(new Uint8Array(buffer, byteOffset + done, Math.min(pieceBytes, byteLength - done)), done)
    if (done + pieceBytes < byteLength) await turn()
  }
}

const isDeviceTensor = (feed: Feed | DeviceTensor): feed is DeviceTensor =>
  typeof feed === 'object' && feed !== null && 'buffer' in feed && feed.buffer instanceof DeviceBuffer

/** A tensor over the memory itself, where it can be seen, or else of a copy. */
function hostTensorOf(
  name: string,
  { buffer, dtype, shape, byteOffset = 0 }: DeviceTensor,
): Tensor<ElementType> {
  const count = numel(shape)
  const Kind = elementArrayOf(dtype) as Float32ArrayConstructor
  const length = (count * elementBits[dtype]) / 8 / Kind.BYTES_PER_ELEMENT
  if (!Number.isInteger(length) || byteOffset % Kind.BYTES_PER_ELEMENT !== 0)
    throw new SparkError(
      'ERR_SHAPE',
      `feeds['${name}']: ${dtype} [${shape.join(', ')}] at byte ${byteOffset} is no whole array`,
    )
  expectSpan(`feeds['${name}'].byteOffset`, buffer, byteOffset, length * Kind.BYTES_PER_ELEMENT)
  const storage = buffer.storage('run')
  if (storage instanceof UnifiedBuffer && storage.zeroCopy) {
    const view = storage.view(Kind, byteOffset, length)
    return Tensor.of(view as unknown as TypedArrayOf<ElementType>, shape, dtype)
  }
  const copy = new Kind(length)
  storage.read(copy, byteOffset)
  return Tensor.of(copy as unknown as TypedArrayOf<ElementType>, shape, dtype)
}
