// model.ts: an ONNX model that runs.
import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectObject,
  expectOneOf,
  expectSignal,
} from '../core/checks.js'
import type { Precision } from '../core/config.js'
import type { ElementArray, ElementType, TypedArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { Pacer } from '../core/paced.js'
import { makeUntransferable } from '../core/untransferable.js'
import type { Dimension, Graph, ValueInfo } from '../graph/graph.js'
import { decompose } from '../graph/rewrites/decompose.js'
import { type Fact, inferFactsPaced } from '../graph/shape-inference.js'
import { readOnnx } from '../io/onnx/read.js'
import { type WriteOnnxOptions, writeOnnx } from '../io/onnx/write.js'
import { Tensor } from '../memory/tensor.js'
import { rewriteForInference } from '../pipeline.js'
import type { StepTime } from '../plan/plan.js'
import type { NVFP4Recipe } from '../precision/kernel-args.js'
import { BoundModel, expectBindable } from './bound-model.js'
import type { Engine, EngineOptions, ModelBackendChoice, ModelStats } from './engine.js'
import { copyFeeds, type Feeds, readFeeds } from './feeds.js'
import { openEngine } from './open-engine.js'
import { choosePrecision, type PrecisionChoice } from './precision.js'
import type { HostTensor, HostValue } from './values.js'

/** Options of {@link Model.load}. */
export interface ModelOptions extends EngineOptions {
  /**
   * Format of the weights of products, which stay in it; the rest is computed in f32, but products with weights of
   * bf16 in bf16. Default: what DGX_SPARK_PRECISION says, or the best one of the hardware: bf16 on GPUs from compute
   * capability 8.0 on, fp16 from 7.0 on, else fp32. `fp4` is another name of nvfp4. {@link compare} measures what a mode costs in accuracy.
   */
  precision?: Precision | 'fp4'
  /**
   * Size of the first dimension of the inputs, also where the file says another one or has written it into a Reshape.
   * Default: what the file says.
   */
  batchSize?: number
  /** How scales of nvfp4 are chosen. Default: modelopt. */
  recipe?: NVFP4Recipe
  /** Names of weights that fp8 and nvfp4 hold in bf16, such as {@link compareWeights} finds. Default: none. */
  keep?: readonly string[]
  /** Ends loading; its promise rejects with the reason of the signal. */
  signal?: AbortSignal | undefined
}

/** Options of {@link Model.run}. */
export interface RunOptions {
  /** Ends the run; its promise rejects with the reason of the signal. */
  signal?: AbortSignal | undefined
}

/** An input or output of a model. */
export interface ModelValue {
  /** Its name. */
  readonly name: string
  /** `sequence` is a list of tensors; what is `optional` may be missing. */
  readonly kind: 'tensor' | 'sequence' | 'optional'
  /** Element type; null where the model does not say it. */
  readonly dtype: ElementType | null
  /** Sizes of the dimensions: a number, the name of an open size, or null; null when not even their number is known. */
  readonly shape: readonly Dimension[] | null
}

/** What a run gives for an output: a tensor, the tensors of a sequence, or null for an optional value that is not there. */
export type ModelOutput = Tensor<ElementType> | readonly Tensor<ElementType>[] | null

/**
 * An ONNX model, ready to run. What is compiled for the shapes of a run's inputs is kept for later runs.
 *
 * @example
 * using model = await Model.load('mnist.onnx')
 * const { logits } = await model.run({ image: new Float32Array(28 * 28) })
 * logits.shape // [1, 10]
 */
export class Model implements Disposable {
  /** The model as a graph of the canonical opset, with its weights rounded to a precision that somebody asked for. */
  readonly graph: Graph
  /** Format of the weights. */
  readonly precision: Precision
  /** Why they are in that format, in words. */
  readonly precisionReason: string
  /** What {@link Model.run} wants. */
  readonly inputs: readonly ModelValue[]
  /** What {@link Model.run} gives. */
  readonly outputs: readonly ModelValue[]
  #engine: Engine | undefined
  /** Settles when the last run that was asked for has ended. */
  #last: Promise<unknown> = Promise.resolve()

  private constructor(
    graph: Graph,
    facts: ReadonlyMap<string, Fact>,
    precision: PrecisionChoice,
    engine: Engine,
  ) {
    this.graph = graph
    this.precision = precision.name
    this.precisionReason = precision.reason
    this.#engine = engine
    this.inputs = graph.inputs.map(describeValue)
    this.outputs = graph.outputs.map(info => {
      const type = facts.get(info.name)?.type ?? info.type
      return describeValue(type ? { name: info.name, type } : info)
    })
  }

  /**
   * Loads an ONNX model of opset 1 to 28. Weights in files beside it are read when a run needs them first.
   *
   * @param source - a path, a `file:` URL, or the bytes of a model, which must then not change and can no longer be
   * transferred to another thread
   * @param options - `backend`: the engine (default: DGX_SPARK_BACKEND, or `auto`, the best one of this machine);
   * `device`: which GPU; `provider`: where onnxruntime computes; `precision`: format of weights; `recipe`: scales of nvfp4;
   * `keep`: weights that stay in bf16; `batchSize`: of the inputs; `signal`: ends loading
   * @throws SparkError ERR_IO when it cannot be read; ERR_FORMAT naming what is broken; ERR_SHAPE or ERR_DTYPE naming a
   * node whose inputs do not fit; ERR_UNSUPPORTED for a version or node that is not understood; ERR_ARGUMENT; what
   * `openKernels` of dgx-spark/kernels throws; and the reason of `signal` when it is aborted
   */
  static async load(source: string | URL | Uint8Array, options: ModelOptions = {}): Promise<Model> {
    expectKnownOptions('options', options, [
      'backend',
      'device',
      'provider',
      'precision',
      'recipe',
      'keep',
      'batchSize',
      'signal',
    ])
    expectSignal('options.signal', options.signal)
    const pacer = new Pacer(options.signal)
    const graph = await readOnnx(source, pacer)
    if (source instanceof Uint8Array && source.buffer instanceof ArrayBuffer)
      makeUntransferable(source.buffer)
    return Model.#make(graph, options, pacer)
  }

  /**
   * A model of a graph of any opset, such as `graph` of an adapter or of a merge.
   * @throws SparkError as {@link Model.load}
   */
  static async fromGraph(graph: Graph, options: ModelOptions = {}): Promise<Model> {
    if (!(graph?.initializers instanceof Map) || !Array.isArray(graph.nodes))
      throw argumentError('graph', 'a graph, such as that of an adapter', graph)
    expectSignal('options.signal', options.signal)
    return Model.#make(graph, options, new Pacer(options.signal))
  }

  static async #make(graph: Graph, options: ModelOptions, pacer: Pacer): Promise<Model> {
    const { precision, recipe = 'modelopt', keep = [], batchSize, signal: _, ...engine } = options
    if (batchSize !== undefined) expectInteger('options.batchSize', batchSize, 1)
    expectOneOf('options.recipe', recipe, ['modelopt', 'te', 'mse'])
    const choice = await choosePrecision(precision, engine)
    const canonical = await rewriteForInference('load', graph, { batchSize }, pacer)
    if (keep.length > 0) expectOneOf('precision, with options.keep,', choice.name, ['fp8', 'nvfp4'])
    const rounding = { mode: choice.name, recipe, keep }
    const rounded = await rewriteForInference('round', canonical, rounding, pacer)
    const opened = await openEngine(rounded, engine, choice.name, pacer)
    const own = choice.automatic ? canonical : rounded
    return new Model(own, await pacer.do(inferFactsPaced(own)), choice, opened)
  }

  /** The engine it runs on, and why. `auto` may change it in the first run, when the GPU turns out to lack an operator. */
  get backend(): ModelBackendChoice {
    return this.#open().choice
  }

  /** What was compiled so far. */
  get stats(): ModelStats {
    return this.#open().stats
  }

  /**
   * Runs the model. Runs of one model wait for each other; load it once more to run it side by side.
   *
   * @param feeds - a value for each input by its name. Arrays are copied before the call returns its promise
   * @returns the outputs by their names, in memory of their own
   * @throws SparkError ERR_ARGUMENT for an input that is missing or unknown, ERR_DTYPE or ERR_SHAPE for a value that does
   * not fit its input or a node behind it, ERR_UNSUPPORTED for a node that the engine lacks, ERR_DISPOSED for a model that
   * was disposed and for memory that was detached; the reason of `signal` when it is aborted
   */
  async run<Output extends ModelOutput = Tensor<ElementType>>(
    feeds: Feeds = {},
    options: RunOptions = {},
  ): Promise<Record<string, Output>> {
    expectKnownOptions('options', options, ['signal'])
    const { signal } = options
    expectSignal('options.signal', signal)
    const engine = this.#open()
    const inputs = copyFeeds(this.graph.inputs, feeds)
    const results = this.#last.then(async () => {
      signal?.throwIfAborted()
      const outputs = await engine.run(inputs, signal)
      return this.outputs.map(({ name }, i) => [name, outputOf(outputs[i]!)] as const)
    })
    this.#last = results.catch(() => undefined)
    return Object.fromEntries(await unlessAborted(results, signal)) as Record<string, Output>
  }

  /**
   * Runs the model once, and then again with a clock: how long each kernel call of its plans takes. Operators that run
   * between plans (control flow, sequences) are not measured.
   *
   * @param feeds - as {@link Model.run} takes them
   * @param options - `runs`: how many are measured (default: 5); the shortest time of each step counts
   * @throws SparkError as {@link Model.run}, and ERR_UNSUPPORTED in ONNX Runtime
   */
  async profile(feeds: Feeds = {}, options: { readonly runs?: number } = {}): Promise<readonly StepTime[]> {
    expectKnownOptions('options', options, ['runs'])
    const { runs = 5 } = options
    expectInteger('options.runs', runs, 1)
    const engine = this.#open()
    const inputs = copyFeeds(this.graph.inputs, feeds)
    const times = this.#last.then(async () => {
      await engine.run(inputs)
      return engine.profile(runs)
    })
    this.#last = times.catch(() => undefined)
    return times
  }

  /**
   * Binds the model to memory of the caller for many runs without copies: `run()` of the result reads the given inputs
   * and writes the given outputs where they are. Runs of it and of the model do not wait for each other.
   *
   * The ArrayBuffers of all inputs and outputs, and of the weights, can then no longer be transferred to another thread,
   * for good: Node throws where one is in a transfer list, or copies it (Node 20). Before Node 24
   * `ArrayBuffer.prototype.transfer` and byte streams do it nonetheless: a program that hands them such memory while a
   * run is in progress may crash; afterwards runs fail with ERR_DISPOSED. Views of a {@link UnifiedBuffer} are safe.
   *
   * @param tensors - a tensor, or a typed array whose shape follows, for each input, and for any output that shall be
   * written to memory of the caller
   * @throws SparkError as {@link Model.run}, and ERR_UNSUPPORTED for a model that is more than one plan (control flow,
   * shapes that depend on data) or runs in ONNX Runtime
   * @example
   * const pixels = new Float32Array(28 * 28)
   * using bound = await model.bind({ image: pixels })
   * for (const digit of digits) {
   *   pixels.set(digit)
   *   await bound.run()
   *   console.log(bound.outputs.logits.data)
   * }
   */
  async bind(tensors: Feeds): Promise<BoundModel> {
    expectObject('tensors', 'an object with a value for each input by its name', tensors)
    const has = (values: readonly ModelValue[], name: string): boolean =>
      values.some(value => value.name === name)
    const isOutput = (name: string): boolean => has(this.outputs, name) && !has(this.inputs, name)
    const feeds = Object.entries(tensors).filter(([name]) => !isOutput(name))
    const inputs = readFeeds(this.graph.inputs, Object.fromEntries(feeds)).map(expectBindable)
    const buffers = new Map(this.graph.inputs.map(({ name }, i) => [name, inputs[i]!.data as ElementArray]))
    for (const { name } of this.outputs) {
      const given = Object.hasOwn(tensors, name) ? tensors[name] : undefined
      if (given instanceof Tensor) buffers.set(name, given.data as ElementArray)
      else if (ArrayBuffer.isView(given)) buffers.set(name, given as ElementArray)
      else if (given !== undefined)
        throw argumentError(`tensors['${name}']`, 'a Tensor or a typed array', given)
    }
    return new BoundModel(await this.#open().bind(inputs, buffers), buffers)
  }

  /**
   * Writes the model as an ONNX file, at the lowest opset that has its operators. Adapters become standard operators.
   * @throws SparkError ERR_IO when it cannot be written, ERR_UNSUPPORTED when it is too large for one file and
   * `externalData` is false, ERR_ARGUMENT
   */
  async save(file: string, options: WriteOnnxOptions = {}): Promise<void> {
    await writeOnnx(decompose(this.graph), file, options)
  }

  /** Frees what was compiled, once all runs that were asked for have ended; a second dispose is a no-op. */
  dispose(): void {
    const engine = this.#engine
    this.#engine = undefined
    if (engine) this.#last = this.#last.then(() => engine.dispose())
  }

  /** As {@link Model.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  #open(): Engine {
    if (!this.#engine) throw new SparkError('ERR_DISPOSED', 'the model has been disposed')
    return this.#engine
  }
}

/** An input or output for people. */
export function describeValue({ name, type }: ValueInfo): ModelValue {
  const kind = type?.kind === 'sequence' || type?.kind === 'optional' ? type.kind : 'tensor'
  let inner = type
  while (inner?.kind === 'sequence' || inner?.kind === 'optional') inner = inner.element
  if (inner?.kind !== 'tensor') return { name, kind, dtype: null, shape: null }
  return { name, kind, dtype: inner.dtype, shape: inner.shape ?? null }
}

/** A value for the caller, with elements of its own. */
function outputOf(value: HostValue): ModelOutput {
  const tensor = ({ data, shape, dtype }: HostTensor): Tensor<ElementType> =>
    Tensor.of(data.slice() as TypedArrayOf<ElementType>, shape, dtype)
  if (value.kind === 'tensor') return tensor(value)
  return value.kind === 'sequence' ? value.items.map(tensor) : null
}

/** Settles as `work` does, or rejects as soon as `signal` is aborted. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return work
  let stop: () => void = () => undefined
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason)
    signal.addEventListener('abort', stop, { once: true })
    if (signal.aborted) stop()
  })
  try {
    return await Promise.race([work, aborted])
  } finally {
    signal.removeEventListener('abort', stop)
  }
}
