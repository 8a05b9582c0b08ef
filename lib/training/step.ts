// step.ts: a training step as one plan: forward and backward pass of each part, clipping, update.

import { expectAttached } from '../core/checks.js'
import type { ElementArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { makeGraph } from '../graph/graph.js'
import { partName } from '../graph/rewrites/accumulate.js'
import { dropoutState } from '../graph/rewrites/dropout.js'
import { lossScale } from '../graph/rewrites/loss-scale.js'
import type { Kernels } from '../kernels/kernels.js'
import { rewriteForTraining, type Shapes, type TrainingGraph } from '../pipeline.js'
import { arenaBytesOf } from '../plan/arena.js'
import { compile } from '../plan/compile.js'
import { Plan } from '../plan/plan.js'
import { type Batch, batchSizeOf } from './dataset.js'
import { converted, expectFields } from './feeds.js'
import type { Optimizer } from './optimizers.js'
import { dependsOnSizes, expectTargets, forwardOf, type PassOptions, passesOf, sameNodes } from './passes.js'
import { expectSameState, type GradientExchange, ownParts, sumShares } from './shared-gradients.js'
import { gradientGraph, gradientInput, updateStart } from './shared-graphs.js'

/** Options of a {@link TrainingStep}. */
export interface StepOptions extends PassOptions {
  readonly optimizer: Optimizer
  /** Maximum global gradient norm; Infinity for no clipping. */
  readonly maxNorm: number
  /** Seed of dropout. */
  readonly seed: number
  /** Maximum bytes of intermediate tensors; beyond, the backward pass recomputes values instead of keeping them. */
  readonly memoryBudget?: number | undefined
  /** Ranks that share the parts of a step. */
  readonly exchange?: GradientExchange | undefined
}

/** The numbers that change from step to step. */
export interface StepNumbers {
  /** Learning rate. */
  readonly rate: number
  /** Number of the step, from 1. */
  readonly step: number
  /** Number of the update, from 1; smaller than `step` if steps were skipped. */
  readonly update: number
  /** Factor of the loss in fp16. */
  readonly lossScale: number
}

/** The result of a step. */
export interface StepResult {
  /** Weighted mean of the losses of the parts, before the update. */
  readonly loss: number
  /** Global gradient norm before clipping. If it is not finite in fp16, nothing was updated. */
  readonly gradientNorm: number
}

/** Parameters and optimizer state by name. */
export type State = ReadonlyMap<string, Float32Array>

/**
 * Runs steps. Each combination of batch sizes has a plan of its own; the state (parameters, moments) moves to the one
 * that runs.
 */
export class TrainingStep implements Disposable {
  readonly #options: StepOptions
  readonly #kernels: Kernels
  readonly #dependsOnSizes: boolean
  readonly #passes = new Map<string, TrainingGraph>()
  readonly #inputs: readonly string[]
  readonly #drops: boolean
  readonly #scales: boolean
  readonly #plans = new Map<string, { plan: Plan; step: TrainingGraph }>()
  #state: State
  #current: Plan | undefined
  /** Plans of the gradients of one part, and which parameters they have. */
  readonly #gradientPlans = new Map<string, { plan: Plan; passes: TrainingGraph; version: number }>()
  /** Counts changes of the parameters. */
  #version = 0
  #isChecked = false

  /** @throws SparkError as {@link addLoss} and {@link differentiate} */
  constructor(options: StepOptions, kernels: Kernels) {
    this.#options = options
    this.#kernels = kernels
    const { adapter, teacher } = options
    this.#dependsOnSizes = [adapter.graph, ...(teacher ? [teacher] : [])].some(dependsOnSizes)
    const { graph } = forwardOf(options)
    const inputs = graph.inputs.map(({ name }) => name).filter(name => !graph.initializers.has(name))
    this.#inputs = inputs.filter(name => name !== dropoutState)
    this.#drops = inputs.includes(dropoutState)
    this.#scales = options.precision === 'fp16'
    this.#state = firstState(options)
    // What cannot be differentiated is said before any data are read.
    if (!this.#dependsOnSizes) this.#passesOf({})
  }

  /** Names of the fields that a batch must contain. */
  get inputs(): readonly string[] {
    return this.#inputs
  }

  /** Bytes of intermediate tensors of the last step's plan. */
  get planBytes(): number {
    return this.#current?.stats.arenaBytes ?? 0
  }

  /** Free bytes in the memory of the backend. */
  get freeBytes(): number {
    return this.#kernels.freeBytes()
  }

  /**
   * A copy of the parameters and the optimizer state.
   * @throws SparkError as {@link Plan.fetchState}
   */
  async readState(): Promise<State> {
    const plan = this.#current
    await plan?.fetchState()
    return new Map(
      [...this.#state].map(([name, values]) => [
        name,
        Float32Array.from(plan ? (plan.state(name) as Float32Array) : values),
      ]),
    )
  }

  /**
   * Replaces parameters and the optimizer's state by those of a checkpoint.
   * @throws SparkError ERR_SHAPE naming `file` when one is missing or of another size
   */
  writeState(state: State, file: string): void {
    for (const [name, { length }] of this.#state) {
      const given = state.get(name)?.length
      if (given !== length) {
        const remedy = 'resume with the layers and ranks that the training began with'
        const found = `'${name}' has ${given ?? 'no'} elements, not ${length}`
        throw new SparkError('ERR_SHAPE', `${file}: ${found}; ${remedy}`)
      }
    }
    this.#state = new Map([...this.#state.keys()].map(name => [name, Float32Array.from(state.get(name)!)]))
    this.#current = undefined
    this.#version++
    this.#isChecked = false
  }

  /**
   * One step over the given parts, whose losses count by their number of samples.
   * @throws SparkError ERR_ARGUMENT for a field that is missing or unknown, ERR_SHAPE, ERR_OUT_OF_MEMORY
   */
  async run(parts: readonly Batch[], numbers: StepNumbers): Promise<StepResult> {
    const { exchange } = this.#options
    if (exchange) return this.#runShared(parts, numbers, exchange)
    const { plan, step: names } = await this.#planFor(parts)
    const { rate, step, update } = numbers
    await this.#enter(plan)
    const { optimizer, seed } = this.#options
    const feeds: Record<string, ElementArray> = { ...optimizer.feeds(rate, update) }
    if (this.#scales) feeds[lossScale] = Float32Array.of(numbers.lossScale)
    parts.forEach((batch, part) => {
      const named = (name: string): string => inputName(name, part, parts.length)
      if (this.#drops) feeds[named(dropoutState)] = Uint32Array.of(seed, step, part)
      Object.assign(feeds, this.#feedsOf(batch, plan, named))
    })
    const results = await plan.run(feeds)
    return { loss: Number(results[names.loss]![0]), gradientNorm: Number(results[names.norm]![0]) }
  }

  /**
   * The bytes for values in between that a step over such batches needs; nothing is allocated.
   * @throws SparkError as {@link TrainingStep.run}
   */
  bytesFor(parts: readonly Batch[]): number {
    const { graph } = this.#wholeStep(this.#passesFor(parts), parts.map(batchSizeOf))
    return arenaBytesOf(compile(graph, { shapes: this.#shapesOf(parts) }).steps)
  }

  /** Frees the plans. */
  dispose(): void {
    for (const { plan } of [...this.#plans.values(), ...this.#gradientPlans.values()]) plan.dispose()
    this.#plans.clear()
    this.#gradientPlans.clear()
    this.#current = undefined
  }

  /** As {@link TrainingStep.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  /** Fields of a batch as inputs of a plan. */
  #feedsOf(batch: Batch, plan: Plan, named: (name: string) => string): Record<string, ElementArray> {
    const feeds: Record<string, ElementArray> = {}
    for (const name of this.#inputs) {
      const { dtype } = plan.inputs.find(binding => binding.name === named(name))!
      const { data } = batch[name]!
      expectAttached(`batch['${name}']`, data)
      feeds[named(name)] = converted(data, dtype)
    }
    return feeds
  }

  /** A step whose parts the ranks share: gradients of this rank's parts, the sum of all, the same update on all ranks. */
  async #runShared(
    parts: readonly Batch[],
    numbers: StepNumbers,
    exchange: GradientExchange,
  ): Promise<StepResult> {
    const sizes = parts.map(batchSizeOf)
    const total = sizes.reduce((sum, size) => sum + size, 0)
    const state = await this.readState()
    if (!this.#isChecked) await expectSameState(exchange, state, numbers.step)
    this.#isChecked = true
    const own: Float32Array[] = []
    for (const part of ownParts(exchange, parts.length))
      own.push(await this.#share(parts[part]!, part, sizes[part]! / total, state, numbers))
    const { parameters } = this.#options.adapter
    const length = parameters.reduce((sum, name) => sum + state.get(name)!.length, 1)
    const sums = await sumShares(exchange, own, parts.length, length)
    return { loss: sums[0]!, gradientNorm: await this.#update(sums, numbers) }
  }

  /** Loss and gradients of one part, times its weight: [1 + elements of the parameters]. */
  async #share(
    batch: Batch,
    part: number,
    weight: number,
    state: State,
    { step, lossScale: scale }: StepNumbers,
  ): Promise<Float32Array> {
    const { plan, passes } = await this.#gradientPlan(batch, state)
    const feeds = this.#feedsOf(batch, plan, name => name)
    if (this.#scales) feeds[lossScale] = Float32Array.of(scale)
    if (this.#drops) feeds[dropoutState] = Uint32Array.of(this.#options.seed, step, part)
    const results = await plan.run(feeds)
    const factor = Math.fround(weight)
    const values = this.#options.adapter.parameters.map(
      name => results[passes.gradients.get(name)!] as Float32Array,
    )
    const share = new Float32Array(values.reduce((sum, { length }) => sum + length, 1))
    share[0] = Number(results[passes.loss]![0]) * factor
    let at = 1
    for (const gradient of values) for (const value of gradient) share[at++] = value * factor
    return share
  }

  async #gradientPlan(batch: Batch, state: State): Promise<{ plan: Plan; passes: TrainingGraph }> {
    const shapes = this.#shapesOf([batch])
    const key = JSON.stringify(shapes)
    let made = this.#gradientPlans.get(key)
    if (!made) {
      const passes = this.#passesFor([batch])
      expectTargets(passes, shapes)
      const plan = await Plan.create(gradientGraph(passes), this.#kernels, { shapes })
      made = { plan, passes, version: -1 }
      this.#gradientPlans.set(key, made)
    }
    if (made.version !== this.#version) {
      for (const name of this.#options.adapter.parameters)
        (made.plan.state(name) as Float32Array).set(state.get(name)!)
      await made.plan.storeState()
      made.version = this.#version
    }
    return made
  }

  /** Updates the parameters; gives the norm of the gradients. */
  async #update(sums: Float32Array, { rate, update, lossScale: scale }: StepNumbers): Promise<number> {
    const { optimizer, adapter } = this.#options
    const { plan, step } = await this.#updatePlan()
    await this.#enter(plan)
    const feeds: Record<string, ElementArray> = { ...optimizer.feeds(rate, update) }
    if (this.#scales) feeds[lossScale] = Float32Array.of(scale)
    let at = 1
    for (const name of adapter.parameters) {
      const { length } = plan.state(name)
      feeds[gradientInput(name)] = sums.slice(at, at + length)
      at += length
    }
    const results = await plan.run(feeds)
    this.#version++
    return Number(results[step.norm]![0])
  }

  async #updatePlan(): Promise<{ plan: Plan; step: TrainingGraph }> {
    const known = this.#plans.get('update')
    if (known) return known
    const { adapter, maxNorm, precision, optimizer } = this.#options
    const step = rewriteForTraining('step', updateStart(adapter, this.#scales), {
      inputs: [],
      weights: [1],
      segments: 1,
      maxNorm,
      precision,
      appendUpdate: (graph, gradients) => optimizer.append(graph, gradients),
    })
    const graph = { ...step.graph, outputs: [{ name: step.norm }] }
    const made = { plan: await Plan.create(graph, this.#kernels), step }
    this.#plans.set('update', made)
    return made
  }

  /** The plan for batches of these sizes. */
  async #planFor(parts: readonly Batch[]): Promise<{ plan: Plan; step: TrainingGraph }> {
    const shapes = this.#shapesOf(parts)
    const key = JSON.stringify(shapes)
    const known = this.#plans.get(key)
    if (known) return known
    for (const batch of parts) expectTargets(this.#passesFor(parts), this.#shapesOf([batch]))
    const step = this.#fittingStep(parts, shapes)
    const made = { plan: await Plan.create(step.graph, this.#kernels, { shapes }), step }
    this.#plans.set(key, made)
    return made
  }

  /** Makes `plan` the one that holds the state. */
  async #enter(plan: Plan): Promise<void> {
    if (plan === this.#current) return
    for (const [name, values] of await this.readState()) (plan.state(name) as Float32Array).set(values)
    await plan.storeState()
    this.#current = plan
  }

  /** Sizes of the inputs, after a check of the names. */
  #shapesOf(parts: readonly Batch[]): Record<string, readonly number[]> {
    const shapes: Record<string, readonly number[]> = {}
    parts.forEach((batch, part) => {
      expectFields(batch, this.#inputs)
      for (const name of this.#inputs) shapes[inputName(name, part, parts.length)] = batch[name]!.shape
    })
    return shapes
  }

  /** The passes for these parts. Branches and numbers of steps of a model must be those of the first part in all of them. */
  #passesFor(parts: readonly Batch[]): TrainingGraph {
    if (!this.#dependsOnSizes) return this.#passesOf({})
    const [first, ...others] = parts.map(batch => {
      const shapes = this.#inputs.map(name => [name, batch[name]!.shape] as const)
      return this.#passesOf(Object.fromEntries(shapes))
    })
    if (others.every(passes => sameNodes(passes.graph, first!.graph))) return first!
    const remedy = 'give batches of one shape, or set accumulate to 1'
    throw new SparkError(
      'ERR_SHAPE',
      `the batches of a step differ in size, and with it what the model computes: ${remedy}`,
    )
  }

  #passesOf(shapes: Shapes): TrainingGraph {
    const key = JSON.stringify(shapes)
    const passes = this.#passes.get(key) ?? passesOf(this.#options, shapes)
    this.#passes.set(key, passes)
    return passes
  }

  /** The step that recomputes as little as the memory budget allows, or with the smallest need when none fits. */
  #fittingStep(parts: readonly Batch[], shapes: Readonly<Record<string, readonly number[]>>): TrainingGraph {
    const { memoryBudget = Number.POSITIVE_INFINITY } = this.#options
    const [passes, sizes] = [this.#passesFor(parts), parts.map(batchSizeOf)]
    if (memoryBudget === Number.POSITIVE_INFINITY) return this.#wholeStep(passes, sizes)
    const maxSegments = Math.max(1, Math.ceil(2 * Math.sqrt(passes.forwardNodes)))
    let [best, minBytes] = [this.#wholeStep(passes, sizes), Number.POSITIVE_INFINITY]
    for (let segments = 1; segments <= maxSegments && minBytes > memoryBudget; segments++) {
      const step = this.#wholeStep(passes, sizes, segments)
      const arenaBytes = arenaBytesOf(compile(step.graph, { shapes }).steps)
      if (arenaBytes < minBytes) [best, minBytes] = [step, arenaBytes]
    }
    return best
  }

  /** The graph of a step over parts of these sizes. */
  #wholeStep(passes: TrainingGraph, sizes: readonly number[], segments = 1): TrainingGraph {
    const total = sizes.reduce((sum, size) => sum + size, 0)
    const { maxNorm, precision, optimizer } = this.#options
    const step = rewriteForTraining('step', passes, {
      inputs: [...this.#inputs, ...(this.#drops ? [dropoutState] : [])],
      weights: sizes.map(size => size / total),
      segments,
      maxNorm,
      precision,
      appendUpdate: (graph, gradients) => optimizer.append(graph, gradients),
    })
    const outputs = [{ name: step.loss }, { name: step.norm }]
    return { ...step, graph: { ...step.graph, outputs } }
  }
}

/** Name of an input in the graph of a step over `count` parts. */
const inputName = (name: string, part: number, count: number): string =>
  count === 1 ? name : partName(name, part)

/** Parameters as the adapter has them, and what the optimizer remembers at first. */
function firstState({ adapter, optimizer }: StepOptions): State {
  const { parameters, graph } = adapter
  const own = new Map(parameters.map(name => [name, graph.initializers.get(name)!]))
  const gradients = new Map(parameters.map(name => [name, name]))
  const { updates, initializers } = optimizer.append(makeGraph({ initializers: own }), gradients)
  const values = (name: string): Float32Array =>
    own.has(name) ? adapter.read(name) : Float32Array.from(initializers.get(name)!.data as Float32Array)
  return new Map([...(updates ?? new Map()).keys()].map(name => [name, values(name)]))
}
