// adapted-model.ts: a model with several adapters, any of which can be active.
import { argumentError, expectKnownOptions, expectText } from '../../core/checks.js'
import type { ElementArray, ElementType, elementArrayOf } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import { Tensor } from '../../memory/tensor.js'
import { type Feeds, readFeeds } from '../../model/feeds.js'
import { Model } from '../../model/model.js'
import type { ModelOptions } from '../../model/model-options.js'
import type { HostValue } from '../../model/values.js'
import { Adapter } from './adapter.js'
import type { MergedModel } from './merge.js'
import { graphOf, type ModelSource } from './model-source.js'

/** The name of an adapter, several to be applied in order, or null for none. */
export type Active = string | readonly string[] | null

/** Options of {@link AdaptedModel.run}. */
export interface AdaptedRunOptions {
  /** The active adapters of this call. Default: {@link AdaptedModel.active}. */
  readonly adapters?: Active
  /** Instead of `adapters`: those of each row of the batch, the first dimension of all inputs and outputs. */
  readonly rows?: readonly Active[]
}

/**
 * A model with any number of adapters, which share its weights. A single adapter is computed beside the frozen weights;
 * only combinations of adapters need merged weights of their own, in floats even if those of the model are quantized.
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
   * @param options - `backend`, `device`, `provider`, `precision` and `recipe`, as in {@link Model.load}
   * @throws SparkError ERR_ARGUMENT
   */
  constructor(model: ModelSource, options: ModelOptions = {}) {
    expectKnownOptions('options', options, ['backend', 'device', 'provider', 'precision', 'recipe'])
    this.base = graphOf(model)
    this.#options = options
  }

  /** Names of the adapters, in insertion order. */
  get names(): readonly string[] {
    return [...this.#adapters.keys()]
  }

  /** The adapters of runs that name none. */
  get active(): Active {
    return this.#active
  }

  /**
   * Adds an adapter without activating it. Its values are read at the first run that uses it: unload it and add it again
   * after training.
   * @throws SparkError ERR_ARGUMENT when the name is taken, or the adapter belongs to another model
   */
  add(name: string, adapter: Adapter): void {
    expectText('name', name)
    if (this.#adapters.has(name))
      throw new SparkError('ERR_ARGUMENT', `the model already has an adapter '${name}'`)
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
   * Activates an adapter, several in order, or with null none.
   * @throws SparkError ERR_ARGUMENT
   */
  setActive(active: Active): void {
    this.#find(active)
    this.#active = active
  }

  /**
   * Removes an adapter and frees the models compiled for it.
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
   * Runs the model. Rows with the same adapters form a batch, so each row gets the result of a run of its own.
   * @param feeds - a value for each input, by name
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

  /** Merges adapters, in order, into the weights of the model. Default: the active ones. */
  async merge(adapters: Active = this.#active): Promise<MergedModel> {
    const found = this.#find(adapters)
    const { mergeAdapters } = await import('./merge.js')
    return mergeAdapters(this.base, found)
  }

  /** Frees the compiled models; a second call does nothing. */
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
      throw new SparkError('ERR_ARGUMENT', `the model has no adapter '${name}'; it has: ${known}`)
    })
  }

  #modelFor(active: Active): Promise<Model> {
    if (this.#disposed) throw new SparkError('ERR_DISPOSED', 'the model has been disposed')
    const key = JSON.stringify(listOf(active))
    const known = this.#models.get(key)
    if (known) return known
    const model = this.#graphFor(active).then(graph => Model.fromGraph(graph, this.#options))
    this.#models.set(key, model)
    model.catch(() => this.#models.delete(key))
    return model
  }

  async #graphFor(active: Active): Promise<Graph> {
    const adapters = this.#find(active)
    if (adapters.length === 1) return adapters[0]!.graph
    if (adapters.length === 0) return this.base
    const { combineAdapters } = await import('./merge.js')
    return combineAdapters(this.base, adapters)
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
        const output = outputs.get(name) ?? Tensor.of(newArray(data, rows.length * width), whole, dtype)
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
    loaded => loaded.dispose(),
    () => undefined,
  )
}

/** A tensor whose first dimension is the batch. */
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

/** Checks that a value is a numeric tensor with `count` rows. */
function rowsOf(name: string, value: HostValue, count: number): Rows {
  if (value.kind !== 'tensor' || !ArrayBuffer.isView(value.data)) {
    throw new SparkError('ERR_UNSUPPORTED', `options.rows: '${name}' is not a numeric tensor`)
  }
  const { dtype, shape, data } = value
  if (shape[0] === count) return { dtype, shape, data }
  throw new SparkError(
    'ERR_SHAPE',
    `options.rows has ${count} entries, but '${name}' is [${shape.join(', ')}]`,
  )
}

function newArray(like: ElementArray, count: number): ElementArray {
  return new (like.constructor as ReturnType<typeof elementArrayOf>)(count)
}

/** Copies `from` to `to` at `offset`; both arrays have the same type. */
function copy(to: ElementArray, offset: number, from: ElementArray): void {
  ;(to as Float32Array).set(from as Float32Array, offset)
}

/** Selects rows of a tensor. */
function takeRows({ dtype, shape, data }: Rows, rows: readonly number[]): Tensor<ElementType> {
  const width = data.length / shape[0]!
  const taken = newArray(data, rows.length * width)
  for (const [i, row] of rows.entries()) copy(taken, i * width, data.subarray(row * width, (row + 1) * width))
  return Tensor.of(taken, [rows.length, ...shape.slice(1)], dtype)
}
