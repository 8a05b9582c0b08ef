// candidate.ts: what is measured: a model in an engine, with its inputs.
import { createHash } from 'node:crypto'
import path from 'node:path'
import type { Precision } from '../core/config.js'
import type { ElementType } from '../core/dtype.js'
import type { Pacer } from '../core/paced.js'
import { numbersOf } from '../diagnostics/compare.js'
import type { Graph, ValueInfo } from '../graph/graph.js'
import { Tensor } from '../memory/tensor.js'
import type { ModelBackend, RuntimeProvider } from '../model/engine.js'
import { type Feeds, readFeeds } from '../model/feeds.js'
import { Model } from '../model/model.js'
import type { ModelValue } from '../model/model-value.js'
import { randomFeeds } from '../model/random-feeds.js'
import type { OutputValues } from './result.js'
import { type Latency, meanOf } from './statistics.js'

/** Runs of one turn. */
export interface Turn {
  /** Number of runs that were made. */
  readonly runs: number
  /** What a program says that tells no single times. */
  readonly latency?: Latency
  /** Inferences of a second, where a program counts them itself. */
  readonly throughput?: number
  /** Mean milliseconds on the device. */
  readonly deviceMs?: number
}

/** What is measured. */
export interface Candidate {
  readonly name: string
  readonly backend: string
  readonly precision: string | null
  /** Whether it runs in this process, so that its processor time and memory are known. */
  readonly inProcess: boolean
  /** Digest of its inputs; null where they are unknown. */
  readonly inputs: string | null
  /** Runs it once before all others; milliseconds, null where a program does it by itself. */
  first(): Promise<number | null>
  /** Makes runs and appends their milliseconds. Throws the reason of the signal when it is aborted; what was appended counts. */
  turn(runs: number, samples: number[], pacer: Pacer): Promise<Turn>
  /** Outputs for the inputs. */
  outputs(): readonly OutputValues[] | null
  dispose(): void | Promise<void>
}

/** How a model is opened. */
export interface OpenOptions {
  readonly precision?: Precision | 'fp4' | undefined
  readonly backend?: ModelBackend | undefined
  readonly provider?: RuntimeProvider | undefined
  readonly batch?: number | undefined
  readonly threads?: number | undefined
  readonly signal?: AbortSignal | undefined
}

/** Opens a model; one that is given is opened again where an option asks for something else. */
export async function openBenchmarkModel(
  source: string | Model,
  { precision, backend, provider, batch, threads, signal }: OpenOptions,
): Promise<{ readonly model: Model; readonly isOurs: boolean }> {
  const options = { precision, backend, provider, batchSize: batch, threads }
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  const wanted = { ...Object.fromEntries(given), ...(signal && { signal }) }
  if (typeof source === 'string') return { model: await Model.load(source, wanted), isOurs: true }
  if (given.length === 0) return { model: source, isOurs: false }
  return { model: await Model.fromGraph(source.graph, wanted), isOurs: true }
}

/** Given inputs as far as they fit, and random ones for the others; open sizes are 1. */
export function benchmarkFeeds(inputs: readonly ModelValue[], given: Feeds, seed: number): Feeds {
  const shapes = inputs.flatMap(({ name, shape }) => {
    const sizes = shape?.map(size => (typeof size === 'number' ? size : 1))
    return sizes ? [[name, sizes] as const] : []
  })
  return randomFeeds(inputs, Object.fromEntries(shapes), given, seed)
}

/** Feeds for another model: those that it has inputs for. */
export function sharedFeeds(inputs: readonly ModelValue[], feeds: Feeds): Feeds {
  const fits = ({ name, dtype, shape }: ModelValue): boolean => {
    const feed = Object.hasOwn(feeds, name) ? feeds[name] : undefined
    if (!(feed instanceof Tensor)) return feed !== undefined
    const fitsSize = (size: unknown, i: number): boolean => typeof size !== 'number' || size === feed.shape[i]
    return feed.dtype === dtype && shape?.length === feed.shape.length && shape.every(fitsSize)
  }
  return Object.fromEntries(inputs.filter(fits).map(({ name }) => [name, feeds[name]!]))
}

/** The inputs of a graph, and the initializers that are fed as well. */
export const fedInputs = ({ inputs, overridable = [] }: Graph, feeds: Feeds): readonly ValueInfo[] => [
  ...inputs,
  ...overridable.filter(({ name }) => Object.hasOwn(feeds, name)),
]

/**
 * SHA-256 of names, types, shapes and elements of inputs; null where one is no tensor.
 * @throws SparkError as {@link readFeeds}
 */
export function digestOf(inputs: readonly ValueInfo[], feeds: Feeds): string | null {
  const values = readFeeds(inputs, feeds)
  const named = inputs.map(({ name }, i) => ({ name, value: values[i]! }))
  const hash = createHash('sha256')
  for (const { name, value } of named.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    if (value.kind !== 'tensor') return null
    const { dtype, shape, data } = value
    hash.update(JSON.stringify([name, dtype, shape]))
    if (ArrayBuffer.isView(data)) hash.update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
    else hash.update(JSON.stringify(data))
  }
  return hash.digest('hex')
}

/** Numbers that a result keeps of the outputs of a candidate at most. */
const maxValues = 1_000_000

/** The outputs that are tensors of numbers; null when they are too many. */
export function outputValues(outputs: Readonly<Record<string, unknown>>): OutputValues[] | null {
  const tensors = Object.entries(outputs).flatMap(([name, output]) => {
    if (!(output instanceof Tensor) || ['string', 'c64', 'c128'].includes(output.dtype)) return []
    return [[name, output as Tensor<ElementType>] as const]
  })
  if (tensors.reduce((sum, [, { size }]) => sum + size, 0) > maxValues) return null
  return tensors.map(([name, tensor]) => ({ name, shape: tensor.shape, values: [...numbersOf(tensor)] }))
}

/**
 * Times runs one after another, each to its end. Between runs others may have their turn.
 * @param deviceMs - what a run took on a device, asked behind it; null where nobody knows
 */
export async function timeRuns(
  run: () => Promise<unknown>,
  runs: number,
  samples: number[],
  pacer: Pacer,
  deviceMs?: () => Promise<number | null>,
): Promise<Turn> {
  const onDevice: number[] = []
  for (let i = 0; i < runs; i++) {
    const start = performance.now()
    await run()
    samples.push(performance.now() - start)
    const device = await deviceMs?.()
    if (typeof device === 'number') onDevice.push(device)
    await pacer.pause()
  }
  return onDevice.length === 0 ? { runs } : { runs, deviceMs: meanOf(onDevice) }
}

/** A model in an engine of this library. */
export class ModelCandidate implements Candidate {
  readonly inProcess = true
  readonly inputs: string | null
  readonly model: Model
  readonly feeds: Feeds
  readonly #label: string
  readonly #isOurs: boolean
  #outputs: Readonly<Record<string, unknown>> = {}

  /** @param label - before the engine in its name; '' for the model itself */
  constructor(label: string, { model, isOurs }: { model: Model; isOurs: boolean }, feeds: Feeds) {
    this.#label = label
    this.#isOurs = isOurs
    this.model = model
    this.feeds = feeds
    this.inputs = digestOf(fedInputs(model.graph, feeds), feeds)
  }

  // `auto` chooses for good in the first run.
  get backend(): string {
    return this.model.backend.name
  }

  get precision(): string {
    return this.model.precision
  }

  get name(): string {
    return `${this.#label && `${this.#label} `}${this.backend} ${this.precision}`
  }

  async first(): Promise<number> {
    const start = performance.now()
    this.#outputs = await this.model.run(this.feeds)
    return performance.now() - start
  }

  async turn(runs: number, samples: number[], pacer: Pacer): Promise<Turn> {
    const run = (): Promise<unknown> => this.model.run(this.feeds)
    return timeRuns(run, runs, samples, pacer, () => this.model.deviceMs())
  }

  outputs(): OutputValues[] | null {
    return outputValues(this.#outputs)
  }

  dispose(): void {
    if (this.#isOurs) this.model.dispose()
  }
}

/** What a file is called in a table. */
export const labelOf = (file: string): string => path.basename(file, '.onnx')
