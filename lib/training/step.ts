// step.ts: one step of training as one plan: forward and backward pass of each part, clipping, update.
import { type ElementArray, type ElementType, elementArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import type { TrainableAdapter } from '../dora/adapter.js'
import { differentiate } from '../graph/gradients/differentiate.js'
import type { Graph } from '../graph/graph.js'
import { accumulate, partName } from '../graph/rewrites/accumulate.js'
import { addClip } from '../graph/rewrites/clip.js'
import { addLoss, type Loss } from '../graph/rewrites/losses.js'
import { recompute } from '../graph/rewrites/recompute.js'
import { addTeacher } from '../graph/rewrites/teacher.js'
import { unroll } from '../graph/rewrites/unroll.js'
import type { Kernels } from '../runtime/kernels.js'
import { compile } from '../runtime/plan/compile.js'
import { Plan } from '../runtime/plan/plan.js'
import { type Batch, batchSizeOf } from './dataset.js'
import type { Optimizer } from './optimizers.js'

/** What a step consists of. */
export interface StepOptions {
  readonly adapter: TrainableAdapter
  readonly loss: Loss
  readonly optimizer: Optimizer
  /** Largest norm of the gradients together; Infinity: no clipping. */
  readonly maxNorm: number
  /** A model whose outputs are targets. */
  readonly teacher?: Graph | undefined
  /** Bytes for values in between; beyond them the backward pass computes values again instead of keeping them. */
  readonly memoryBudget?: number | undefined
}

/** The result of a step. */
export interface StepResult {
  /** Weighted mean of the losses of the parts, before the update. */
  readonly loss: number
  /** Norm of all gradients together, before clipping. */
  readonly gradientNorm: number
}

/** A graph with its forward and backward pass. */
interface Passes {
  readonly graph: Graph
  /** Nodes of the forward pass. */
  readonly forward: number
  readonly loss: string
  readonly gradients: ReadonlyMap<string, string>
}

/** A graph of a whole step, and the names of its results. */
interface WholeStep {
  readonly graph: Graph
  readonly loss: string
  readonly norm: string
}

/** Elements of each state by its name. */
export type State = ReadonlyMap<string, Float32Array>

/**
 * Runs steps. Each combination of batch sizes has a plan of its own; the state (parameters, moments) moves to the one
 * that runs.
 */
export class TrainingStep implements Disposable {
  readonly #options: StepOptions
  readonly #kernels: Kernels
  readonly #passes: Passes
  readonly #inputs: readonly string[]
  readonly #plans = new Map<string, { plan: Plan; step: WholeStep }>()
  #state: State
  #current: Plan | undefined

  /** @throws SparkError as {@link addLoss} and {@link differentiate}, ERR_UNSUPPORTED for a model of f16 or bf16 */
  constructor(options: StepOptions, kernels: Kernels) {
    this.#options = options
    this.#kernels = kernels
    this.#passes = passesOf(options)
    const { graph } = this.#passes
    this.#inputs = graph.inputs.map(({ name }) => name).filter(name => !graph.initializers.has(name))
    const whole = this.#wholeStep([1]).graph
    this.#state = new Map(
      [...(whole.updates ?? [])].map(([name]) => {
        const { parameters } = options.adapter
        const first = whole.initializers.get(name)!.data as Float32Array
        return [name, parameters.includes(name) ? options.adapter.read(name) : Float32Array.from(first)]
      }),
    )
  }

  /** Names of what a batch must contain. */
  get inputs(): readonly string[] {
    return this.#inputs
  }

  /** Bytes that the plan of the last step uses for values in between. */
  get planBytes(): number {
    return this.#current?.stats.arenaBytes ?? 0
  }

  /** Bytes that are free where the values in between lie. */
  get freeBytes(): number {
    return this.#kernels.freeBytes()
  }

  /**
   * Parameters and the optimizer's state: a copy.
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
   * Replaces parameters and the optimizer's state.
   * @throws SparkError ERR_SHAPE when one is missing or of another size
   */
  writeState(state: State): void {
    for (const [name, { length }] of this.#state) {
      const given = state.get(name)?.length
      if (given !== length) {
        throw new SparkError('ERR_SHAPE', `state '${name}' has ${given ?? 'no'} elements, expected ${length}`)
      }
    }
    this.#state = new Map([...this.#state.keys()].map(name => [name, Float32Array.from(state.get(name)!)]))
    this.#current = undefined
  }

  /**
   * One step over the given parts, whose losses count by their number of samples.
   * @param step - number of the step, from 1
   * @throws SparkError ERR_ARGUMENT for a field that is missing or unknown, ERR_SHAPE, ERR_OUT_OF_MEMORY
   */
  async run(parts: readonly Batch[], rate: number, step: number): Promise<StepResult> {
    const { plan, step: names } = await this.#planFor(parts)
    await this.#enter(plan)
    const feeds: Record<string, ElementArray> = { ...this.#options.optimizer.feeds(rate, step) }
    parts.forEach((batch, part) => {
      for (const name of this.#inputs) {
        const input = inputName(name, part, parts.length)
        const { dtype } = plan.inputs.find(port => port.name === input)!
        feeds[input] = converted(batch[name]!.data, dtype)
      }
    })
    const results = await plan.run(feeds)
    return { loss: Number(results[names.loss]![0]), gradientNorm: Number(results[names.norm]![0]) }
  }

  /**
   * The bytes for values in between that a step over such batches needs; nothing is allocated.
   * @throws SparkError as {@link TrainingStep.run}
   */
  bytesFor(parts: readonly Batch[]): number {
    const { graph } = this.#wholeStep(parts.map(batchSizeOf))
    return compile(graph, { shapes: this.#shapesOf(parts) }).arenaBytes
  }

  /** Frees the plans. */
  dispose(): void {
    for (const { plan } of this.#plans.values()) plan.dispose()
    this.#plans.clear()
    this.#current = undefined
  }

  /** As {@link TrainingStep.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  /** The plan for batches of these sizes. */
  async #planFor(parts: readonly Batch[]): Promise<{ plan: Plan; step: WholeStep }> {
    const shapes = this.#shapesOf(parts)
    const key = JSON.stringify(shapes)
    const known = this.#plans.get(key)
    if (known) return known
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

  /** The step that recomputes as little as the memory budget allows, or with the smallest need when none fits. */
  #fittingStep(parts: readonly Batch[], shapes: Readonly<Record<string, readonly number[]>>): WholeStep {
    const { memoryBudget = Number.POSITIVE_INFINITY } = this.#options
    const sizes = parts.map(batchSizeOf)
    if (memoryBudget === Number.POSITIVE_INFINITY) return this.#wholeStep(sizes)
    const most = Math.max(1, Math.ceil(2 * Math.sqrt(this.#passes.forward)))
    let [best, least] = [this.#wholeStep(sizes), Number.POSITIVE_INFINITY]
    for (let segments = 1; segments <= most && least > memoryBudget; segments++) {
      const step = this.#wholeStep(sizes, segments)
      const { arenaBytes } = compile(step.graph, { shapes })
      if (arenaBytes < least) [best, least] = [step, arenaBytes]
    }
    return best
  }

  /** The graph of a step over parts of these sizes. */
  #wholeStep(sizes: readonly number[], segments = 1): WholeStep {
    const { loss, gradients, forward } = this.#passes
    const total = sizes.reduce((sum, size) => sum + size, 0)
    const weights = sizes.map(size => size / total)
    const values = [loss, ...gradients.values()]
    const graph = segments === 1 ? this.#passes.graph : recompute(this.#passes.graph, { forward, segments })
    const summed = sizes.length === 1 ? graph : accumulate(graph, { inputs: this.#inputs, values, weights })
    const clipped = addClip(summed, gradients, this.#options.maxNorm)
    const updated = this.#options.optimizer.append(clipped.graph, clipped.gradients)
    const outputs = [loss, clipped.norm].map(name => ({ name }))
    return { graph: { ...updated, outputs }, loss, norm: clipped.norm }
  }
}

/** Name of an input in the graph of a step over `count` parts. */
const inputName = (name: string, part: number, count: number): string =>
  count === 1 ? name : partName(name, part)

/** Refuses models whose activations are no f32. */
function expectF32({ inputs }: Graph): void {
  for (const { name, type } of inputs) {
    if (type?.kind !== 'tensor' || (type.dtype !== 'f16' && type.dtype !== 'bf16')) continue
    const remedy = 'activations of a training are f32; convert the model'
    throw new SparkError('ERR_UNSUPPORTED', `input '${name}' is ${type.dtype}: ${remedy}`)
  }
}

/** Teacher, loss and gradients. */
function passesOf({ adapter, loss, teacher }: StepOptions): Passes {
  expectF32(adapter.graph)
  const { graph, values } = teacher
    ? addTeacher(adapter.graph, teacher)
    : { graph: adapter.graph, values: new Map<string, string>() }
  const withLoss = addLoss(unroll(graph), loss, values)
  const wrt = [...adapter.parameters]
  const forward = withLoss.graph.nodes.length
  return { ...differentiate(withLoss.graph, { loss: withLoss.loss, wrt }), forward, loss: withLoss.loss }
}

function expectFields(batch: Batch, inputs: readonly string[]): void {
  const fields = Object.keys(batch)
  if (fields.length === inputs.length && inputs.every(name => fields.includes(name))) return
  throw new SparkError(
    'ERR_ARGUMENT',
    `a batch has the fields ${fields.join(', ') || 'none'}; the step reads ${inputs.join(', ')}`,
  )
}

/** The elements in the array of `dtype`; only integers are converted, and only where none is changed by it. */
function converted(data: ElementArray, dtype: ElementType): ElementArray {
  const array = elementArrayOf(dtype)
  if (data.constructor === array || isFloat(data) || array === Float32Array || array === Float64Array)
    return data
  const convert = array === BigInt64Array || array === BigUint64Array ? BigInt : Number
  return (array as Int32ArrayConstructor).from(data as Int32Array, convert as NumberConstructor)
}

const isFloat = (data: ElementArray): boolean => data instanceof Float32Array || data instanceof Float64Array
