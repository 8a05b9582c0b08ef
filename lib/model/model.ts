// model.ts: an ONNX model that runs.
import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectObject,
  expectSignal,
} from '../core/checks.js'
import type { Precision } from '../core/config.js'
import type { ElementArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { Pacer } from '../core/paced.js'
import type { Graph, ValueInfo } from '../graph/graph.js'
import { feedInitializers, outputIndices } from '../graph/rewrites/ends.js'
import { type Fact, inferFactsPaced } from '../graph/shape-inference.js'
import { type WriteOnnxOptions, writeOnnx } from '../io/onnx/save.js'
import { Tensor } from '../memory/tensor.js'
import type { StepTime } from '../plan/step-time.js'
import { BoundModel, expectBindable } from './bound-model.js'
import type { Engine, ModelBackendChoice, ModelStats } from './engine.js'
import { FeedAreas } from './feed-areas.js'
import { copyFeeds, type Feeds, readFeeds } from './feeds.js'
import type { ModelFile } from './model-file.js'
import {
  asRank,
  type LoadOptions,
  loadOptions,
  type ModelOptions,
  type OpenedGraph,
  openGraph,
  type RunOptions,
} from './model-options.js'
import { describeValue, type ModelValue } from './model-value.js'
import { type AnyTensor, type ModelOutput, type OutputTypes, outputOf, type RunResults } from './results.js'
import { RunQueue, unlessAborted } from './run-queue.js'
import { type StatePairs, statePairs } from './state-pairs.js'
import { StatefulModel, type StatefulSource, type StateOptions } from './stateful-model.js'

/** What runs for one choice of fed initializers. */
interface Variant {
  readonly inputs: readonly ValueInfo[]
  open(): Promise<Engine>
  /** As {@link Engine.trim}, where it is open. */
  trim?(): Promise<void>
}

/** What only this module can hand to the constructor. */
const internal: unique symbol = Symbol('internal')

/**
 * An ONNX model, ready to run. What is compiled for the shapes of a run's inputs is kept for later runs.
 *
 * @example
 * const model = await Model.load('mnist.onnx')
 * const { logits } = await model.run<{ logits: 'f32' }>({ image: new Float32Array(28 * 28) })
 * logits.data // Float32Array(10)
 * model.dispose()
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
  /** Initializers that {@link Model.run} takes values for as well. */
  readonly overridable: readonly ModelValue[]
  #engine: Engine | undefined
  /** Opens the model with some of its initializers as inputs. */
  readonly #reopen: (names: readonly string[]) => Promise<OpenedGraph>
  readonly #communicator: ModelOptions['communicator']
  /** By the names of the fed initializers. */
  readonly #variants = new Map<string, Variant>()
  readonly #feedAreas = new FeedAreas()
  /** Settles when the last run that was asked for has ended. */
  readonly #queue = new RunQueue()
  /** What ran last. */
  #ran: Engine | undefined

  private constructor(
    key: typeof internal,
    opened: OpenedGraph,
    facts: ReadonlyMap<string, Fact>,
    reopen: (names: readonly string[]) => Promise<OpenedGraph>,
    communicator: ModelOptions['communicator'],
  ) {
    this.#communicator = communicator
    if (key !== internal) {
      const call = "await Model.load('model.onnx'), or await Model.fromGraph(graph)"
      throw new SparkError('ERR_ARGUMENT', `new Model(…) makes no model; call ${call}`)
    }
    const { graph, precision, engine } = opened
    this.graph = graph
    this.precision = precision.name
    this.precisionReason = precision.reason
    this.#engine = engine
    this.#reopen = reopen
    this.inputs = graph.inputs.map(describeValue)
    this.overridable = (graph.overridable ?? []).map(describeValue)
    this.outputs = graph.outputs.map(info => {
      const type = facts.get(info.name)?.type ?? info.type
      return describeValue(type ? { name: info.name, type } : info)
    })
  }

  /**
   * Loads an ONNX model of opset 1 to 28. Weights in files beside it are read when a run needs them first.
   *
   * @param source - a path; a `file:`, `http:` or `https:` URL; or the bytes of a model, which must then not change and can
   * no longer be transferred to another thread
   * @param options - `backend`: the engine (default: DGX_SPARK_BACKEND, or `auto`, the best one of this machine);
   * `device`: which GPU; `threads`: of the CPU; `memory`: `small` for weights in no enlarged layout;
   * `weightCache`: keeps packed weights on the disk; `provider`: where onnxruntime computes; `precision`: format of weights;
   * `activations`: rows; `recipe`: scales of nvfp4; `keep`: weights that stay in bf16; `batchSize`: of the inputs; `outputs`: those that are
   * wanted; `externalData`: files beside a model that comes as bytes; `maxBytes`: of a download; `signal`: ends loading
   * @throws SparkError ERR_IO when it cannot be read or downloaded; ERR_FORMAT naming what is broken; ERR_SHAPE or ERR_DTYPE
   * naming a node whose inputs do not fit; ERR_UNSUPPORTED for a version or node that is not understood; ERR_ARGUMENT;
   * ERR_OUT_OF_MEMORY with numbers for weights of which there is more than free memory; what `openKernels` of dgx-spark/kernels throws; and the reason of `signal` when it is aborted
   */
  static async load(source: ModelFile, options: LoadOptions = {}): Promise<Model> {
    expectKnownOptions('options', options, loadOptions)
    const { externalData: _, maxBytes: __, ...others } = options
    expectSignal('options.signal', options.signal)
    const pacer = new Pacer(options.signal)
    const { readSource } = await import('./model-file.js')
    return Model.#make(await readSource(source, options, pacer), others, pacer)
  }

  /**
   * A model of a graph of any opset, such as that of a {@link GraphBuilder}, an adapter or a merge.
   * @param options - as {@link Model.load} takes them, but for `externalData` and `maxBytes`
   * @throws SparkError as {@link Model.load}
   */
  static async fromGraph(graph: Graph, options: ModelOptions = {}): Promise<Model> {
    if (!(graph?.initializers instanceof Map) || !Array.isArray(graph.nodes))
      throw argumentError('graph', 'a graph, such as that of an adapter', graph)
    expectSignal('options.signal', options.signal)
    return Model.#make(graph, options, new Pacer(options.signal))
  }

  static async #make(graph: Graph, options: ModelOptions, pacer: Pacer): Promise<Model> {
    const opened = await openGraph(graph, options, pacer)
    const facts = await pacer.do(inferFactsPaced(opened.graph))
    // The closure would keep the whole file in memory.
    const source = opened.graph.overridable?.length ? graph : undefined
    const reopen = (names: readonly string[]): Promise<OpenedGraph> =>
      openGraph(feedInitializers(source ?? opened.graph, names), options, new Pacer())
    return new Model(internal, opened, facts, reopen, options.communicator)
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
   * @param feeds - a value for each input by its name, and for any of {@link Model.overridable}. Arrays are copied before
   * the call returns its promise
   * @param options - `outputs`: those that are wanted; `signal`: ends the run
   * @typeParam T - what the outputs are, as {@link OutputTypes}: nothing checks it. Without it they are tensors of any type
   * @returns the outputs by their names, in memory of their own
   * @throws SparkError ERR_ARGUMENT for an input that is missing or unknown, ERR_DTYPE or ERR_SHAPE for a value that does
   * not fit its input or a node behind it, ERR_UNSUPPORTED for a node that the engine lacks, ERR_DISPOSED for a model that
   * was disposed and for memory that was detached; the reason of `signal` when it is aborted
   * @example
   * const { scores, ids } = await model.run<{ scores: 'f32'; ids: 'i64' }>({ image })
   * scores.data // Float32Array
   */
  async run<T extends ModelOutput | OutputTypes = AnyTensor>(
    feeds: Feeds = {},
    options: RunOptions = {},
  ): Promise<RunResults<NoInfer<T>>> {
    return asRank(this.#communicator, () => this.#run<T>(feeds, options))
  }

  async #run<T extends ModelOutput | OutputTypes>(
    feeds: Feeds,
    options: RunOptions,
  ): Promise<RunResults<NoInfer<T>>> {
    expectKnownOptions('options', options, ['outputs', 'signal'])
    const { outputs, signal } = options
    expectSignal('options.signal', signal)
    const indices = outputs && outputIndices(this.graph, outputs, 'options.outputs')
    const variant = this.#variantFor(feeds)
    const { values: inputs, release } = this.#feedAreas.copy(variant.inputs, feeds)
    const results = this.#queue.add(async () => {
      try {
        signal?.throwIfAborted()
        const engine = await variant.open()
        this.#ran = engine
        const values = await engine.run(inputs, { signal, outputs: indices })
        const wanted = indices?.map(index => this.outputs[index]!) ?? this.outputs
        return wanted.map(({ name }, i) => [name, outputOf(values[i]!)] as const)
      } finally {
        release()
      }
    })
    return Object.fromEntries(await unlessAborted(results, signal)) as RunResults<T>
  }

  /**
   * Runs the model once, then again with a clock: how long kernel calls of its plans take. What runs between plans is not measured.
   *
   * @param feeds - as {@link Model.run} takes them
   * @param options - `runs`: how many are measured (default: 5); the shortest time of each step counts
   * @throws SparkError as {@link Model.run}, and ERR_UNSUPPORTED in ONNX Runtime
   */
  async profile(feeds: Feeds = {}, options: { readonly runs?: number } = {}): Promise<readonly StepTime[]> {
    expectKnownOptions('options', options, ['runs'])
    const { runs = 5 } = options
    expectInteger('options.runs', runs, 1)
    const variant = this.#variantFor(feeds)
    const inputs = copyFeeds(variant.inputs, feeds)
    return this.#queue.add(async () => {
      const engine = await variant.open()
      await engine.run(inputs)
      return engine.profile(runs)
    })
  }

  /**
   * Milliseconds that the plans of the last `run` took on a GPU, by its events, after all runs that were asked for: null in other
   * engines, and before the first run behind the first call, which begins to measure.
   */
  async deviceMs(): Promise<number | null> {
    return this.#queue.add(() => this.#ran?.deviceMs?.() ?? null)
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
   * @param tensors - a tensor or typed array for each input, and for any output that shall be written to memory of the caller
   * @throws SparkError as {@link Model.run}, and ERR_UNSUPPORTED for a model that is more than one plan (control flow,
   * shapes that depend on data) or runs in ONNX Runtime
   * @example
   * const pixels = new Float32Array(28 * 28)
   * const bound = await model.bind({ image: pixels })
   * for (const digit of digits) {
   *   pixels.set(digit)
   *   await bound.run()
   *   console.log(bound.outputs.logits.data)
   * }
   * bound.dispose()
   */
  async bind(tensors: Feeds): Promise<BoundModel> {
    expectObject('tensors', 'an object with a value for each input by its name', tensors)
    const variant = this.#variantFor(tensors)
    const has = (values: readonly { readonly name: string }[], name: string): boolean =>
      values.some(value => value.name === name)
    const isOutput = (name: string): boolean => has(this.outputs, name) && !has(variant.inputs, name)
    const feeds = Object.entries(tensors).filter(([name]) => !isOutput(name))
    const inputs = readFeeds(variant.inputs, Object.fromEntries(feeds)).map(expectBindable)
    const buffers = new Map(variant.inputs.map(({ name }, i) => [name, inputs[i]!.data as ElementArray]))
    for (const { name } of this.outputs) {
      const given = Object.hasOwn(tensors, name) ? tensors[name] : undefined
      if (given instanceof Tensor) buffers.set(name, given.data as ElementArray)
      else if (ArrayBuffer.isView(given)) buffers.set(name, given as ElementArray)
      else if (given !== undefined)
        throw argumentError(`tensors['${name}']`, 'a Tensor or a typed array', given)
    }
    const engine = await variant.open()
    return new BoundModel(await engine.bind(inputs, buffers), buffers)
  }

  /**
   * Lets outputs become inputs of the next run, in memory of the model: a decoder's growing past is never copied, and a run
   * writes only what is new. Attention, GroupQueryAttention, MultiHeadAttention and concatenations write in place; what other
   * operators make is copied once, on the device.
   *
   * @param pairs - outputs by the names of the inputs that they replace, such as `{ past: 'present' }`; or
   * `{ output, axis }` where the shapes do not say along which axis they grow (`null`: along none). Default: all inputs and
   * outputs whose names differ in `past` (`past_key_values`) and `present` only
   * @param options - `initial`: what the states begin with
   * @throws SparkError ERR_ARGUMENT for pairs that do not fit together, ERR_DISPOSED
   * @example
   * const decoder = model.bindState({ 'past.0.key': 'present.0.key', 'past.0.value': 'present.0.value' })
   * const { logits } = await decoder.run({ input_ids: prompt })
   */
  bindState(pairs?: StatePairs, options: StateOptions = {}): StatefulModel {
    this.#open()
    const enqueue: StatefulSource['enqueue'] = (work, signal) => {
      const done = this.#queue.add(() => {
        signal?.throwIfAborted()
        return work(this.#open())
      })
      return unlessAborted(done, signal)
    }
    const afterRuns: StatefulSource['afterRuns'] = free => void this.#queue.add(free)
    const outputs = this.outputs.map(({ name }) => name)
    const source = {
      inputs: this.graph.inputs,
      outputs,
      enqueue,
      afterRuns,
      communicator: this.#communicator,
    }
    return new StatefulModel(source, statePairs(this, pairs), options)
  }

  /**
   * Writes the model as an ONNX file, at the lowest opset that has its operators. Adapters become standard operators.
   * @throws SparkError ERR_IO when it cannot be written, ERR_UNSUPPORTED when it is too large for one file and
   * `externalData` is false, ERR_ARGUMENT
   */
  async save(file: string, options: WriteOnnxOptions = {}): Promise<void> {
    const { decompose } = await import('../graph/rewrites/decompose.js')
    await writeOnnx(decompose(this.graph), file, options)
  }

  /**
   * Frees the memory that the next run takes again: plans that are bound to sizes, their arena, copies of feeds. Weights, and what
   * was compiled, stay: results are the same bit for bit, and the next run takes a little longer. It waits for the runs that were
   * asked for. What {@link Model.bind} gave stays as it is; the states of {@link Model.bindState} have a `trim` of their own.
   * @throws SparkError ERR_DISPOSED
   */
  async trim(): Promise<void> {
    const engine = this.#open()
    await this.#queue.add(async () => {
      engine.trim?.()
      for (const variant of this.#variants.values()) await variant.trim?.()
      this.#feedAreas.trim()
    })
  }

  /** Frees what was compiled, once all runs that were asked for have ended; a second dispose is a no-op. */
  dispose(): void {
    const engine = this.#engine
    this.#engine = undefined
    if (!engine) return
    const variants = [...this.#variants.values()]
    void this.#queue.add(async () => {
      engine.dispose()
      for (const { open } of variants) (await open()).dispose()
    })
  }

  /** As {@link Model.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  #open(): Engine {
    if (!this.#engine) throw new SparkError('ERR_DISPOSED', 'the model has been disposed')
    return this.#engine
  }

  /** What runs for these feeds. An engine of its own does where initializers are fed, which it must not fold. */
  #variantFor(feeds: Feeds): Variant {
    const engine = this.#open()
    const isFed = ({ name }: ModelValue): boolean =>
      typeof feeds === 'object' && feeds !== null && Object.hasOwn(feeds, name) && feeds[name] !== undefined
    const names = this.overridable.filter(isFed).map(({ name }) => name)
    if (names.length === 0) return { inputs: this.graph.inputs, open: async () => engine }
    const key = JSON.stringify(names)
    const known = this.#variants.get(key)
    if (known) return known
    let opened: Promise<OpenedGraph> | undefined
    const { inputs } = feedInitializers(this.graph, names)
    const open = async (): Promise<Engine> => {
      opened ??= this.#reopen(names)
      return (await opened).engine
    }
    const trim = async (): Promise<void> => (await opened)?.engine.trim?.()
    const variant = { inputs, open, trim }
    this.#variants.set(key, variant)
    return variant
  }
}
