// dataset.ts: training data: indexed datasets and streams of batches.
import { argumentError, expectAttached, expectInteger, expectObject } from '../core/checks.js'
import type { ElementArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { randomGenerator } from '../core/random.js'
import { numel } from '../core/shape.js'

/** One tensor of a batch. */
export interface BatchTensor {
  /** Sizes, the batch dimension among them. */
  readonly shape: readonly number[]
  /** Row-major. For f16 and bf16 inputs their bit patterns, or f32 values, which are rounded. */
  readonly data: ElementArray
  /** The batch dimension; null for a tensor that all samples share. Default: 0. */
  readonly axis?: number | null
}

/** A batch: a tensor for each input of the model and each target, by name. */
export type Batch = Readonly<Record<string, BatchTensor>>

/** Samples that can be read in any order. */
export interface Dataset {
  /** Number of samples. */
  readonly size: number
  /** Reads the samples with these indices, in order, into one batch. */
  read(samples: readonly number[]): Batch | Promise<Batch>
}

/** A stream of batches; it determines their order and sizes. */
export type BatchStream = AsyncIterable<Batch> | Iterable<Batch>

/** Data for {@link Trainer.fit} and {@link Trainer.evaluate}; a function returns the stream of an epoch, counted from 0. */
export type TrainingData = Dataset | BatchStream | ((epoch: number) => BatchStream)

/**
 * Samples in memory.
 * @example
 * new ArrayDataset({ x: { shape: [10000, 784], data: pixels }, target: { shape: [10000], data: labels } })
 */
export class ArrayDataset implements Dataset {
  /** Number of samples. */
  readonly size: number
  readonly #fields: Batch

  /** @throws SparkError ERR_ARGUMENT, ERR_SHAPE for fields with different numbers of samples, or data that do not fit a shape */
  constructor(fields: Batch) {
    expectObject('fields', 'an object of tensors by name', fields)
    const entries = Object.entries(fields)
    for (const [name, field] of entries) {
      if (!Array.isArray(field?.shape) || !ArrayBuffer.isView(field.data))
        throw argumentError(`fields['${name}']`, '{ shape, data }', field)
    }
    const counted = entries.find(([, field]) => samplesOf(field) !== undefined)
    this.size = counted ? samplesOf(counted[1])! : 0
    for (const [name, field] of entries) {
      const { shape, data } = field
      if (data.length !== numel(shape)) {
        const expected = `[${shape.join(', ')}] needs ${numel(shape)}`
        throw new SparkError('ERR_SHAPE', `field '${name}' has ${data.length} elements, but ${expected}`)
      }
      const samples = samplesOf(field) ?? this.size
      if (samples !== this.size) {
        const others = `'${counted![0]}' has ${this.size}`
        throw new SparkError('ERR_SHAPE', `field '${name}' has ${samples} samples, but ${others}`)
      }
    }
    this.#fields = fields
  }

  /** Copies samples. */
  read(samples: readonly number[]): Batch {
    for (const sample of samples) expectInteger('sample', sample, 0, this.size - 1)
    const gather = ([name, field]: [string, BatchTensor]): [string, BatchTensor] => {
      const { shape, data, axis = 0 } = field
      expectAttached(`fields['${name}']`, data)
      if (axis === null) return [name, field]
      const [outer, row] = [numel(shape.slice(0, axis)), numel(shape.slice(axis + 1))]
      const chosen = data.slice(0, outer * samples.length * row)
      for (let part = 0; part < outer; part++) {
        samples.forEach((sample, at) => {
          const from = (part * this.size + sample) * row
          chosen.set(data.subarray(from, from + row) as never, (part * samples.length + at) * row)
        })
      }
      return [name, { ...withSamples(field, samples.length), data: chosen }]
    }
    return Object.fromEntries(Object.entries(this.#fields).map(gather))
  }
}

/** Options of {@link BatchReader}. */
export interface BatchOptions {
  /** Samples per batch; the last batch of an epoch may be smaller. Ignored for streams. */
  readonly batchSize: number
  /** Seed of the order. */
  readonly seed: number
  /** Whether each epoch reads the samples in a new order; otherwise in the order of their indices. */
  readonly shuffle: boolean
}

/** Reads training data batch by batch. The order of an epoch depends only on the seed and the index of the epoch. */
export class BatchReader {
  readonly #data: TrainingData
  readonly #options: BatchOptions

  constructor(data: TrainingData, options: BatchOptions) {
    this.#data = data
    this.#options = options
  }

  /** Number of batches per epoch; undefined for a stream. */
  get batchesPerEpoch(): number | undefined {
    return isDataset(this.#data) ? Math.ceil(this.#data.size / this.#options.batchSize) : undefined
  }

  /** Indices of the samples of a batch in their dataset; undefined for a stream. */
  samplesOf(epoch: number, batch: number): readonly number[] | undefined {
    if (!isDataset(this.#data)) return undefined
    const { batchSize } = this.#options
    return this.#orderOf(epoch, this.#data.size).slice(batch * batchSize, (batch + 1) * batchSize)
  }

  /** The batches of an epoch, starting at index `first`. */
  async *epoch(epoch: number, first = 0): AsyncGenerator<Batch> {
    const data = this.#data
    if (isDataset(data)) {
      const order = this.#orderOf(epoch, data.size)
      const { batchSize } = this.#options
      for (let start = first * batchSize; start < data.size; start += batchSize) {
        yield await data.read(order.slice(start, start + batchSize))
      }
      return
    }
    let at = 0
    for await (const batch of streamOf(data, epoch)) {
      expectBatch(batch, at)
      if (at++ >= first) yield batch
    }
    if (at > 0) return
    const remedy =
      'an iterator can be read only once, so pass a function that returns a new one for each epoch'
    throw new SparkError('ERR_ARGUMENT', `the data of epoch ${epoch + 1} are empty: ${remedy}`)
  }

  /** Fisher-Yates shuffle. */
  #orderOf(epoch: number, size: number): number[] {
    const order = Array.from({ length: size }, (_, i) => i)
    if (!this.#options.shuffle) return order
    const random = randomGenerator((this.#options.seed ^ Math.imul(epoch + 1, 0x9e3779b1)) >>> 0)
    for (let last = size - 1; last > 0; last--) {
      const other = Math.floor(random() * (last + 1))
      ;[order[last], order[other]] = [order[other]!, order[last]!]
    }
    return order
  }
}

/** Throws ERR_ARGUMENT unless `data` is training data, and for an empty dataset. */
export function expectTrainingData(data: unknown, name = 'data'): asserts data is TrainingData {
  const streams = [Symbol.asyncIterator, Symbol.iterator]
  const fits =
    typeof data === 'function' ||
    (typeof data === 'object' &&
      data !== null &&
      (isDataset(data as TrainingData) || streams.some(s => s in data)))
  if (!fits)
    throw argumentError(name, 'a dataset, an iterable of batches or a function that returns one', data)
  if (isDataset(data as TrainingData)) expectInteger(`${name}.size`, (data as Dataset).size, 1)
}

/** Number of samples; undefined for a stream. */
export const sampleCount = (data: TrainingData): number | undefined =>
  isDataset(data) ? data.size : undefined

/** The batches of an epoch. @throws SparkError ERR_ARGUMENT when a function does not return a stream */
function streamOf(data: Exclude<TrainingData, Dataset>, epoch: number): BatchStream {
  if (typeof data !== 'function') return data
  const stream: unknown = data(epoch)
  const isStream =
    typeof stream === 'object' &&
    stream !== null &&
    (Symbol.asyncIterator in stream || Symbol.iterator in stream)
  if (!isStream) throw argumentError(`the data of epoch ${epoch + 1}`, 'an iterable of batches', stream)
  return stream as BatchStream
}

function expectBatch(batch: unknown, at: number): void {
  expectObject(`batch ${at}`, 'an object of tensors by name', batch)
  for (const [name, field] of Object.entries(batch)) {
    if (!Array.isArray(field?.shape) || !ArrayBuffer.isView(field.data))
      throw argumentError(`batch ${at}: '${name}'`, '{ shape, data } with a typed array', field)
  }
}

const isDataset = (data: TrainingData): data is Dataset =>
  typeof (data as Dataset).read === 'function' && typeof (data as Dataset).size === 'number'

/** Number of samples of a field; undefined for a shared tensor. */
const samplesOf = ({ shape, axis = 0 }: BatchTensor): number | undefined =>
  axis === null ? undefined : (shape[axis] ?? 0)

/** A field with another number of samples in its shape. */
export function withSamples(field: BatchTensor, count: number): BatchTensor {
  const { shape, axis = 0 } = field
  return axis === null ? field : { ...field, shape: shape.with(axis, count) }
}

/**
 * Number of samples of a batch.
 * @throws SparkError ERR_SHAPE for an empty batch, or fields with different numbers of samples
 */
export function batchSizeOf(batch: Batch): number {
  const counted = Object.entries(batch).filter(([, { axis }]) => axis !== null)
  const [size = 0] = counted.map(([, field]) => samplesOf(field)!)
  if (size > 0 && counted.every(([, field]) => samplesOf(field) === size)) return size
  const sizes = counted.map(([name, field]) => `${name}: ${samplesOf(field)}`).join(', ')
  const remedy = "set 'axis' if the batch dimension is not the first"
  throw new SparkError(
    'ERR_SHAPE',
    `all fields of a batch must have the same number of samples, at least 1: ${sizes || 'none'}; ${remedy}`,
  )
}
