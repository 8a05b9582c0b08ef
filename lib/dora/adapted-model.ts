// adapted-model.ts: several adapters on one model, one of them, some in order, or none of them active.
import { argumentError, expectKnownOptions } from '../core/checks.js'
import type { BackendName } from '../core/config.js'
import type { ElementArray, elementArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import type { Graph } from '../graph/graph.js'
import type { GpuSelector } from '../hardware/cuda-device.js'
import type { Kernels } from '../runtime/kernels.js'
import { openKernels } from '../runtime/open.js'
import { Plan } from '../runtime/plan/plan.js'
import { type MergedModel, mergeAdapters } from './merge-model.js'
import type { Adapter } from './model-adapter.js'
import { graphOf, type ModelSource } from './model-source.js'

/** An adapter by its name, several that work one after the other, or none. */
export type Active = string | readonly string[] | null

/** Options of {@link AdaptedModel.create}. */
export interface AdaptedModelOptions {
  /** Engine. Default: the best of this machine. */
  readonly backend?: BackendName
  /** Which GPU. Default: the best one. */
  readonly device?: GpuSelector
}

/** Options of {@link AdaptedModel.run}. */
export interface AdaptedRunOptions {
  /** What is active in this call. Default: {@link AdaptedModel.active}. */
  readonly adapters?: Active
  /** What is active for each row of the batch, the first dimension of all inputs and outputs; instead of `adapters`. */
  readonly rows?: readonly Active[]
}

/** Values by name: inputs or outputs of a model. */
export type Values = Readonly<Record<string, ShapedArray>>

/** A value of a model. */
export interface ShapedArray {
  /** Sizes of the dimensions. */
  readonly shape: readonly number[]
  /** Row-major. */
  readonly data: ElementArray
}

/**
 * A model with any number of adapters. Its weights are in memory once: a single adapter computes beside them, and only
 * adapters that are combined need merged weights of their own.
 *
 * @example
 * const model = await AdaptedModel.create(base)
 * model.add('night', await Adapter.load(base, 'night'))
 * await model.run({ x }, { adapters: 'night' })
 * await model.run({ x }, { rows: ['night', null, 'night'] })
 */
export class AdaptedModel implements Disposable {
  /** The model without adapters. */
  readonly base: Graph
  readonly #kernels: Kernels
  readonly #adapters = new Map<string, Adapter>()
  readonly #plans = new Map<string, Promise<Plan>>()
  #active: Active = null
  #disposed = false
  /** The newest run: plans keep their values in memory of their own, so that runs wait for each other. */
  #last: Promise<unknown> = Promise.resolve()

  private constructor(base: Graph, kernels: Kernels) {
    this.base = base
    this.#kernels = kernels
  }

  /**
   * Opens an engine for a model.
   * @throws SparkError as {@link openKernels}
   */
  static async create(model: ModelSource, options: AdaptedModelOptions = {}): Promise<AdaptedModel> {
    expectKnownOptions('options', options, ['backend', 'device'])
    return new AdaptedModel(graphOf(model), await openKernels({ ...options }))
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
    if (typeof name !== 'string' || name === '') throw argumentError('name', 'a name', name)
    if (this.#adapters.has(name))
      throw new SparkError('ERR_ARGUMENT', `there is an adapter '${name}' already`)
    if (adapter.base !== this.base) {
      throw new SparkError(
        'ERR_ARGUMENT',
        `adapter '${name}' was made for another model: load it for this one`,
      )
    }
    this.#adapters.set(name, adapter)
  }

  /** Makes an adapter active, several in their order, or with null none. @throws SparkError ERR_ARGUMENT */
  setActive(active: Active): void {
    this.#find(active)
    this.#active = active
  }

  /** Forgets an adapter and frees what was made for it. @throws SparkError ERR_ARGUMENT when it is active or unknown */
  unload(name: string): void {
    this.#find(name)
    if (listOf(this.#active).includes(name)) {
      throw new SparkError(
        'ERR_ARGUMENT',
        `adapter '${name}' is active: setActive another one, or null, first`,
      )
    }
    this.#adapters.delete(name)
    for (const [key, plan] of this.#plans) {
      if (!(JSON.parse(key) as [string[]])[0].includes(name)) continue
      this.#plans.delete(key)
      void plan.then(made => made.dispose())
    }
  }

  /**
   * Runs the model. Rows with different adapters run as a batch of each, so that they get the numbers of runs of their
   * own.
   * @param inputs - by name: shape and elements, row-major
   * @throws SparkError ERR_ARGUMENT for an unknown adapter or input, ERR_SHAPE for inputs that do not fit, ERR_DISPOSED
   */
  async run(inputs: Values, options: AdaptedRunOptions = {}): Promise<Values> {
    expectKnownOptions('options', options, ['adapters', 'rows'])
    if (options.rows === undefined) return this.#runOne(inputs, options.adapters ?? this.#active)
    if (options.adapters !== undefined) {
      throw new SparkError('ERR_ARGUMENT', 'options.adapters and options.rows exclude each other')
    }
    return this.#runRows(inputs, options.rows)
  }

  /** The model with adapters in its weights, in their order. Default: the active ones. */
  merge(adapters: Active = this.#active): Promise<MergedModel> {
    return mergeAdapters(this.base, this.#find(adapters), { backend: this.#kernels.backend })
  }

  /** Frees all plans. A second dispose is a no-op. */
  dispose(): void {
    this.#disposed = true
    for (const plan of this.#plans.values()) void plan.then(made => made.dispose())
    this.#plans.clear()
  }

  /** As {@link AdaptedModel.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  #find(active: Active): Adapter[] {
    return listOf(active).map(name => {
      const adapter = this.#adapters.get(name)
      if (adapter) return adapter
      const known = this.names.join(', ') || 'none'
      throw new SparkError('ERR_ARGUMENT', `there is no adapter '${name}'; there are: ${known}`)
    })
  }

  async #runOne(inputs: Values, active: Active): Promise<Values> {
    const plan = await this.#planFor(inputs, active)
    const run = this.#last.then(async () => {
      const results = await plan.run(mapValues(inputs, ({ data }) => data))
      const copy = (name: string): ElementArray => results[name]!.slice() as ElementArray
      return Object.fromEntries(
        plan.outputs.map(({ name, shape }) => [name, { shape, data: copy(name) }] as const),
      )
    })
    this.#last = run.catch(() => undefined)
    return run
  }

  #planFor(inputs: Values, active: Active): Promise<Plan> {
    if (this.#disposed) throw new SparkError('ERR_DISPOSED', 'the model has been disposed')
    const shapes = mapValues(inputs, ({ shape }) => shape)
    const key = JSON.stringify([listOf(active), shapes])
    const known = this.#plans.get(key)
    if (known) return known
    const made = this.#graphFor(active).then(graph => Plan.create(graph, this.#kernels, { shapes }))
    this.#plans.set(key, made)
    made.catch(() => this.#plans.delete(key))
    return made
  }

  async #graphFor(active: Active): Promise<Graph> {
    const adapters = this.#find(active)
    if (adapters.length === 1) return adapters[0]!.graph
    return adapters.length === 0 ? this.base : (await this.merge(active)).graph
  }

  async #runRows(inputs: Values, rows: readonly Active[]): Promise<Values> {
    const wrong = Object.entries(inputs).find(([, { shape }]) => shape[0] !== rows.length)
    if (wrong) {
      const [name, { shape }] = wrong
      throw new SparkError(
        'ERR_SHAPE',
        `options.rows has ${rows.length} entries, but '${name}' is [${shape.join(', ')}]`,
      )
    }
    const groups = new Map<string, number[]>()
    for (const [row, active] of rows.entries()) {
      const key = JSON.stringify(listOf(active))
      groups.set(key, [...(groups.get(key) ?? []), row])
    }
    const outputs: Record<string, { shape: readonly number[]; data: ElementArray }> = {}
    for (const [key, members] of groups) {
      const part = mapValues(inputs, value => takeRows(value, members))
      const results = await this.#runOne(part, JSON.parse(key) as string[])
      for (const [name, { shape, data }] of Object.entries(results)) {
        if (shape[0] !== members.length) {
          throw new SparkError(
            'ERR_SHAPE',
            `output '${name}' [${shape.join(', ')}] has no row for each of the batch`,
          )
        }
        const width = data.length / members.length
        outputs[name] ??= {
          shape: [rows.length, ...shape.slice(1)],
          data: new (data.constructor as ReturnType<typeof elementArrayOf>)(rows.length * width),
        }
        const target = outputs[name].data as Float32Array
        for (const [i, row] of members.entries()) {
          target.set(data.subarray(i * width, (i + 1) * width) as Float32Array, row * width)
        }
      }
    }
    return outputs
  }
}

const listOf = (active: Active): readonly string[] =>
  active === null ? [] : typeof active === 'string' ? [active] : active

function mapValues<A, B>(values: Readonly<Record<string, A>>, change: (value: A) => B): Record<string, B> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, change(value)]))
}

/** Some rows of a value whose first dimension counts them. */
function takeRows({ shape, data }: Values[string], rows: readonly number[]): Values[string] {
  const width = data.length / shape[0]!
  const taken = new (data.constructor as ReturnType<typeof elementArrayOf>)(rows.length * width)
  for (const [i, row] of rows.entries()) {
    ;(taken as Float32Array).set(data.subarray(row * width, (row + 1) * width) as Float32Array, i * width)
  }
  return { shape: [rows.length, ...shape.slice(1)], data: taken }
}
