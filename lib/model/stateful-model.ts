// stateful-model.ts: a model whose outputs become inputs of its next run.
import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectObject,
  expectSignal,
} from '../core/checks.js'
import type { ElementType } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import type { ValueInfo } from '../graph/graph.js'
import type { Tensor } from '../memory/tensor.js'
import type { Engine } from './engine.js'
import { copyFeeds, type Feeds } from './feeds.js'
import { asRank, type ModelOptions, type RunOptions } from './model-options.js'
import { ModelState, StateGroup, type StatePair } from './model-state.js'
import { type AnyTensor, type ModelOutput, type OutputTypes, outputOf, type RunResults } from './results.js'
import type { HostTensor, HostValue } from './values.js'

/** What a {@link StatefulModel} needs of its model. */
export interface StatefulSource {
  readonly inputs: readonly ValueInfo[]
  /** Names of the outputs. */
  readonly outputs: readonly string[]
  /** Does work on the engine after all runs that were asked for before. */
  readonly enqueue: <T>(work: (engine: Engine) => Promise<T>, signal?: AbortSignal) => Promise<T>
  /** Frees something after these runs, whether the model is still open or not. */
  readonly afterRuns: (free: () => void) => void
  /** The rank that the model is, if it is one. */
  readonly communicator: ModelOptions['communicator']
}

/** Options of `Model.bindState`. */
export interface StateOptions {
  /** What states begin with, by the names of their inputs. Default: nothing along the axis that grows, and zeros. */
  initial?: Feeds
}

/**
 * A model that keeps values from run to run: the keys and values of a decoder's past, or what a recurrent network carries on.
 * They are no inputs and outputs any more. What grows lies in memory with room behind it, which doubles when it is full: a run
 * writes only what is new. Made by `Model.bindState`; several of one model are independent of each other.
 * @example
 * const decoder = model.bindState() // pairs past… with present…
 * for (let step = 0; step < 100; step++) {
 *   const { logits } = await decoder.run({ input_ids: [[token]], attention_mask: Tensor.ones([1, step + 1], 'i64') })
 *   token = logits.argMax(-1).data.at(-1)
 * }
 * decoder.dispose()
 */
export class StatefulModel implements Disposable {
  readonly #source: StatefulSource
  readonly #pairs: readonly StatePair[]
  readonly #inputs: readonly ValueInfo[]
  readonly #outputs: readonly string[]
  readonly #group = new StateGroup()
  readonly #initial: ReadonlyMap<string, HostTensor>
  /** In the order of the pairs; empty before the first run. */
  #states: readonly ModelState[] = []
  #isDisposed = false

  /** @internal */
  constructor(source: StatefulSource, pairs: readonly StatePair[], options: StateOptions = {}) {
    expectKnownOptions('options', options, ['initial'])
    this.#source = source
    this.#pairs = pairs
    const [inputs, outputs] = [
      new Set(pairs.map(pair => pair.input)),
      new Set(pairs.map(pair => pair.output)),
    ]
    this.#inputs = source.inputs.filter(({ name }) => !inputs.has(name))
    this.#outputs = source.outputs.filter(name => !outputs.has(name))
    this.#initial = this.#readInitial(options.initial ?? {})
  }

  /** Names of the inputs that a run wants. */
  get inputs(): readonly string[] {
    return this.#inputs.map(({ name }) => name)
  }

  /** Names of the outputs that a run gives. */
  get outputs(): readonly string[] {
    return this.#outputs
  }

  /** The largest size of a state along the axis that grows: the length of a decoder's past. 0 before the first run. */
  get length(): number {
    const growing = this.#states.filter(({ pair }) => pair.axis !== undefined)
    return Math.max(0, ...growing.map(({ length }) => length))
  }

  /**
   * Runs the model on its states, which move on. After a run that fails or is aborted they are what they were before.
   * @param feeds - a value for each input that is no state
   * @param options - as `Model.run` takes them
   * @returns the outputs that are no states
   * @throws SparkError as `Model.run`; ERR_ARGUMENT when a run has failed after it had written over a state: reset first
   */
  async run<T extends ModelOutput | OutputTypes = AnyTensor>(
    feeds: Feeds = {},
    options: RunOptions = {},
  ): Promise<RunResults<NoInfer<T>>> {
    return asRank(this.#source.communicator, () => this.#run<T>(feeds, options))
  }

  async #run<T extends ModelOutput | OutputTypes>(
    feeds: Feeds,
    options: RunOptions,
  ): Promise<RunResults<NoInfer<T>>> {
    expectKnownOptions('options', options, ['outputs', 'signal'])
    const { outputs = this.#outputs, signal } = options
    expectSignal('options.signal', signal)
    const wanted = this.#wanted(outputs)
    const values = copyFeeds(this.#inputs, feeds)
    const work = async (engine: Engine): Promise<RunResults<T>> => {
      this.#expectUsable()
      if (this.#states.length === 0) this.#states = await this.#begin(values, engine)
      const inputs = this.#merged(values)
      const results = await engine.run(inputs, { signal, outputs: wanted })
      signal?.throwIfAborted()
      for (const [i, state] of this.#states.entries())
        await state.commit(results[outputs.length + i] as HostTensor)
      return Object.fromEntries(outputs.map((name, i) => [name, outputOf(results[i]!)])) as RunResults<T>
    }
    return this.#source.enqueue(work, signal)
  }

  /**
   * Copies of the states by the names of their inputs, after all runs that were asked for. None before the first run.
   * @throws SparkError ERR_DISPOSED; ERR_ARGUMENT when a run has failed after it had written over one
   */
  async states(): Promise<Record<string, Tensor<ElementType>>> {
    return this.#source.enqueue(async () => {
      this.#expectUsable()
      return Object.fromEntries(
        this.#states.map(state => [state.pair.input, outputOf(state) as Tensor<ElementType>]),
      )
    })
  }

  /**
   * Calls `work` with the states by the names of their inputs, where they are, after all runs that were asked for.
   * @internal
   * @throws SparkError as {@link StatefulModel.states}
   */
  async visit<T>(work: (states: ReadonlyMap<string, ModelState>) => T): Promise<T> {
    return this.#source.enqueue(async engine => {
      this.#expectUsable()
      if (this.#states.length === 0) this.#states = await this.#begin([], engine)
      return work(new Map(this.#states.map(state => [state.pair.input, state])))
    })
  }

  /**
   * Forgets what lies behind the first `length` elements of the axis that grows, after all runs that were asked for: the way back
   * to an earlier token. States that do not grow stay as they are.
   * @throws SparkError ERR_ARGUMENT, ERR_DISPOSED
   */
  async truncate(length: number): Promise<void> {
    expectInteger('length', length, 0)
    await this.#source.enqueue(async () => {
      this.#expectUsable()
      for (const state of this.#states) state.truncate(length)
    })
  }

  /**
   * Frees the plans that are bound to the states, after all runs that were asked for; the states stay. As `Model.trim`.
   * @throws SparkError ERR_DISPOSED
   */
  async trim(): Promise<void> {
    await this.#source.enqueue(async () => {
      this.#expectOpen()
      this.#group.dispose()
    })
  }

  /**
   * Begins anew with the initial states, after all runs that were asked for.
   * @throws SparkError ERR_DISPOSED
   */
  async reset(): Promise<void> {
    await this.#source.enqueue(async () => {
      this.#expectOpen()
      this.#drop()
    })
  }

  /** Frees the states. A second dispose is a no-op. */
  dispose(): void {
    if (this.#isDisposed) return
    this.#isDisposed = true
    this.#source.afterRuns(() => {
      this.#group.dispose()
      this.#drop()
    })
  }

  /** As {@link StatefulModel.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  #drop(): void {
    for (const state of this.#states) state.dispose()
    this.#states = []
  }

  #expectOpen(): void {
    if (this.#isDisposed) throw new SparkError('ERR_DISPOSED', 'the states of the model have been disposed')
  }

  #expectUsable(): void {
    this.#expectOpen()
    const lost = this.#states.find(({ isLost }) => isLost)
    if (!lost) return
    const why = 'a run that did not end well has written over it: call reset()'
    throw new SparkError('ERR_ARGUMENT', `the state '${lost.pair.input}' is not known any more: ${why}`)
  }

  #readInitial(initial: Feeds): ReadonlyMap<string, HostTensor> {
    expectObject('options.initial', 'an object with values by the names of inputs', initial)
    for (const name of Object.keys(initial))
      if (!this.#pairs.some(({ input }) => input === name))
        throw argumentError(
          'options.initial',
          `values for ${this.#pairs.map(({ input }) => input).join(', ')}`,
          name,
        )
    const infos = this.#source.inputs.filter(({ name }) => Object.hasOwn(initial, name))
    const values = copyFeeds(infos, initial) as HostTensor[]
    return new Map(infos.map(({ name }, i) => [name, values[i]!]))
  }

  /** Places of the outputs that a run computes: those that a caller wants, and then the states. */
  #wanted(outputs: readonly string[]): number[] {
    const known = this.#outputs
    const wrong = Array.isArray(outputs) ? outputs.find(name => !known.includes(name)) : outputs
    if (wrong !== undefined) throw argumentError('options.outputs', `a list of ${known.join(', ')}`, wrong)
    const names = [...outputs, ...this.#pairs.map(({ output }) => output)]
    return names.map(name => this.#source.outputs.indexOf(name))
  }

  /** The inputs of a run in their order. */
  #merged(values: readonly HostValue[]): HostValue[] {
    const all = new Map<string, HostValue>(this.#inputs.map(({ name }, i) => [name, values[i]!]))
    for (const state of this.#states) all.set(state.pair.input, state)
    return this.#source.inputs.map(({ name }) => all.get(name)!)
  }

  /** The states before the first run; sizes that have the name of a size of another input are that. */
  async #begin(values: readonly HostValue[], engine: Engine): Promise<ModelState[]> {
    const sizes = new Map<string, number>()
    for (const [i, { type }] of this.#inputs.entries()) {
      const value = values[i]
      if (type?.kind !== 'tensor' || value?.kind !== 'tensor') continue
      for (const [axis, size] of (type.shape ?? []).entries())
        if (typeof size === 'string') sizes.set(size, value.shape[axis]!)
    }
    return Promise.all(
      this.#pairs.map(async pair => {
        const given = this.#initial.get(pair.input)
        const shape = given?.shape ?? this.#emptyShape(pair, sizes)
        const state = await ModelState.create(pair, this.#group, shape, engine)
        if (given) await state.assign(given)
        return state
      }),
    )
  }

  #emptyShape({ input, axis }: StatePair, sizes: ReadonlyMap<string, number>): number[] {
    const type = this.#source.inputs.find(({ name }) => name === input)?.type
    const shape = type?.kind === 'tensor' ? type.shape : undefined
    const numbers = shape?.map((size, i) => {
      if (i === axis) return 0
      return typeof size === 'string' ? sizes.get(size) : size
    })
    if (numbers?.every(size => typeof size === 'number')) return numbers
    const shown = shape ? `[${shape.map(size => size ?? '?').join(', ')}]` : 'unknown'
    const remedy = `say what it begins with: bindState(pairs, { initial: { '${input}': tensor } })`
    throw new SparkError('ERR_SHAPE', `the shape ${shown} of the state '${input}' is open: ${remedy}`)
  }
}
