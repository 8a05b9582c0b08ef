// adapted-model.ts: several adapters on one model, one of them, some in order, or none of them active.
import { argumentError, expectKnownOptions, expectText } from '../../core/checks.js'
import type { ElementArray, ElementType, elementArrayOf } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import { Tensor } from '../../memory/tensor.js'
import { type Feeds, readFeeds } from '../../model/feeds.js'
import { Model, type ModelOptions } from '../../model/model.js'
import type { HostValue } from '../../model/values.js'
import { Adapter } from './adapter.js'
import { combineAdapters, type MergedModel, mergeAdapters } from './merge.js'
import { graphOf, type ModelSource } from './model-source.js'

/** An adapter by its name, several that work one after the other, or none. */
export type Active = string | readonly string[] | null

/** Options of {@link AdaptedModel.run}. */
export interface AdaptedRunOptions {
  /** What is active in this call. Default: {@link AdaptedModel.active}. */
  readonly adapters?: Active
  /** What is active for each row of the batch, the first dimension of all inputs and outputs; instead of `adapters`. */
  readonly rows?: readonly Active[]
}

/**
 * A model with any number of adapters. Its weights are in memory once: a single adapter computes beside them, and only
 * adapters that are combined need merged weights of their own, in floats also where those of the model are quantized.
 *
 * @example
 * const model = new AdaptedModel(base)
 * model.add('night', await Adapter.load(base, 'night'))
 * await model.run({ x }, { adapters: 'night' })
 * await model.run({ x }, { rows: ['night', null, 'night'] })
 */
export class AdaptedModel implements Disposable {
  /** The model without adapters. */
  readonly base: Graph
  readonly #options: ModelOptions
  readonly #adapters = new Map<string, Adapter>()
  readonly #models = new Map<string, Promise<Model>>()
  #active: Active = null
  #disposed = false

  /**
   * @param model - a model or its canonical graph
   * @param options - `backend`, `device`, `provider`, `precision` and `recipe`, as those of {@link Model.load}
   * @throws SparkError ERR_ARGUMENT
   */
  constructor(model: ModelSource, options: ModelOptions = {}) {
    expectKnownOptions('options', options, ['backend', 'device', 'provider', 'precision', 'recipe'])
    this.base = graphOf(model)
    this.#options = options
  }

  /** Names of the adapters, in the order in which they were added. */
  get names(): readonly string[] {
    return [...this.#adapters.keys()]
  }

  /** What runs without a choice of its own go through. */
  get active(): Active {
    return this.#active
  }

  /**
   * Adds an adapter; it is not active yet. Its values count as they are at the first run with it: add it again after
   * training.
   * @throws SparkError ERR_ARGUMENT when the name is taken, or the adapter is one of another model
   */
  add(name: string, adapter: Adapter): void {
    expectText('name', name)
    if (this.#adapters.has(name))
      throw new SparkError('ERR_ARGUMENT', `there is an adapter '${name}' already`)
    if (!(adapter instanceof Adapter)) throw argumentError('adapter', 'an Adapter', adapter)
    if (adapter.base !== this.base) {
      throw new SparkError(
        'ERR_ARGUMENT',
        `adapter '${name}' was made for another model: load it for this one`,
      )
    }
    this.#adapters.set(name, adapter)
  }

  /**
   * Makes an adapter active, several in their order, or with null none.
   * @throws SparkError ERR_ARGUMENT
   */
  setActive(active: Active): void {
    this.#find(active)
    this.#active = active
  }

  /**
   * Forgets an adapter and frees what was made for it.
   * @throws SparkError ERR_ARGUMENT when it is active or unknown
   */
  unload(name: string): void {
    this.#find(name)
    if (listOf(this.#active).includes(name)) {
      throw new SparkError(
        'ERR_ARGUMENT',
        `adapter '${name}' is active: setActive another one, or null, first`,
      )
    }
    this.#adapters.delete(name)
    for (const [key, model] of this.#models) {
      if (!(JSON.parse(key) as string[]).includes(name)) continue
      this.#models.delete(key)
      disposeLater(model)
    }
  }

  /**
   * Runs the model. Rows with different adapters run as a batch of each, so that they get the numbers of runs of their
   * own.
   * @param feeds - a value for each input by its name
   * @throws SparkError ERR_ARGUMENT for an unknown adapter, ERR_SHAPE for rows that do not fit, and as {@link Model.run}
   */
  async run(feeds: Feeds, options: AdaptedRunOptions = {}): Promise<Record<string, Tensor<ElementType>>> {
    expectKnownOptions('options', options, ['adapters', 'rows'])
    if (options.rows === undefined) {
      const { adapters = this.#active } = options
      return (await this.#modelFor(adapters)).run(feeds)
    }
    if (options.adapters !== undefined) {
      throw new SparkError('ERR_ARGUMENT', 'options.adapters and options.rows exclude each other')
    }
    if (!Array.isArray(options.rows)) throw argumentError('options.rows', 'a list', options.rows)
    return this.#runRows(feeds, options.rows)
  }

  /** The model with adapters in its weights, in their order. Default: the active ones. */
  async merge(adapters: Active = this.#active): Promise<MergedModel> {
    return mergeAdapters(this.base, this.#find(adapters))
  }

  /** Frees what was compiled. A second dispose is a no-op. */
  dispose(): void {
    this.#disposed = true
    for (const model of this.#models.values()) disposeLater(model)
    this.#models.clear()
  }

  /** As {@link AdaptedModel.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  #find(active: Active): Adapter[] {
    const names = listOf(active)
    if (!Array.isArray(names)) throw argumentError('adapters', 'a name, a list of names or null', active)
    return names.map(name => {
      const adapter = this.#adapters.get(name)
      if (adapter) return adapter
      const known = this.names.join(', ') || 'none'
      throw new SparkError('ERR_ARGUMENT', `there is no adapter '${name}'; there are: ${known}`)
    })
  }

  #modelFor(active: Active): Promise<Model> {
    if (this.#disposed) throw new SparkError('ERR_DISPOSED', 'the model has been disposed')
    const key = JSON.stringify(listOf(active))
    const known = this.#models.get(key)
    if (known) return known
    const made = this.#graphFor(active).then(graph => Model.fromGraph(graph, this.#options))
    this.#models.set(key, made)
    made.catch(() => this.#models.delete(key))
    return made
  }

  async #graphFor(active: Active): Promise<Graph> {
    const adapters = this.#find(active)
    if (adapters.length === 1) return adapters[0]!.graph
    return adapters.length === 0 ? this.base : combineAdapters(this.base, adapters)
  }

  async #runRows(feeds: Feeds, rows: readonly Active[]): Promise<Record<string, Tensor<ElementType>>> {
    const values = readFeeds(this.base.inputs, feeds)
    const inputs = this.base.inputs.map(
      ({ name }, i) => [name, rowsOf(name, values[i]!, rows.length)] as const,
    )
    const groups = new Map<string, number[]>()
    for (const [row, active] of rows.entries()) {
      this.#find(active)
      const key = JSON.stringify(listOf(active))
      groups.set(key, [...(groups.get(key) ?? []), row])
    }
    const outputs = new Map<string, Tensor<ElementType>>()
    for (const [key, members] of groups) {
      const model = await this.#modelFor(JSON.parse(key) as string[])
      const part = Object.fromEntries(inputs.map(([name, value]) => [name, takeRows(value, members)]))
      for (const [name, result] of Object.entries(await model.run(part))) {
        const { data, shape, dtype } = rowsOf(
          name,
          { kind: 'tensor', ...tensorParts(result) },
          members.length,
        )
        const width = data.length / members.length
        const whole = [rows.length, ...shape.slice(1)]
        const output = outputs.get(name) ?? Tensor.of(makeArray(data, rows.length * width), whole, dtype)
        outputs.set(name, output)
        for (const [i, row] of members.entries()) {
          copy(output.data as ElementArray, row * width, data.subarray(i * width, (i + 1) * width))
        }
      }
    }
    return Object.fromEntries(outputs)
  }
}

const listOf = (active: Active): readonly string[] =>
  active === null ? [] : typeof active === 'string' ? [active] : active

function disposeLater(model: Promise<Model>): void {
  model.then(
    made => made.dispose(),
    () => undefined,
  )
}

/** What a batch is cut from: a tensor in rows. */
interface Rows {
  readonly dtype: ElementType
  readonly shape: readonly number[]
  readonly data: ElementArray
}

const tensorParts = ({ dtype, shape, data }: Tensor<ElementType>): Rows => ({
  dtype,
  shape,
  data: data as ElementArray,
})

/** A value with a row for each of the batch. */
function rowsOf(name: string, value: HostValue, count: number): Rows {
  if (value.kind !== 'tensor' || !ArrayBuffer.isView(value.data)) {
    throw new SparkError('ERR_UNSUPPORTED', `options.rows: '${name}' is no tensor of numbers`)
  }
  const { dtype, shape, data } = value
  if (shape[0] === count) return { dtype, shape, data }
  throw new SparkError(
    'ERR_SHAPE',
    `options.rows has ${count} entries, but '${name}' is [${shape.join(', ')}]`,
  )
}

function makeArray(like: ElementArray, count: number): ElementArray {
  return new (like.constructor as ReturnType<typeof elementArrayOf>)(count)
}

/** Arrays of one type, whatever it is. */
function copy(to: ElementArray, at: number, from: ElementArray): void {
  ;(to as Float32Array).set(from as Float32Array, at)
}

/** Some rows of a value. */
function takeRows({ dtype, shape, data }: Rows, rows: readonly number[]): Tensor<ElementType> {
  const width = data.length / shape[0]!
  const taken = makeArray(data, rows.length * width)
  for (const [i, row] of rows.entries()) copy(taken, i * width, data.subarray(row * width, (row + 1) * width))
  return Tensor.of(taken, [rows.length, ...shape.slice(1)], dtype)
}
