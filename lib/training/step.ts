// step.ts: one step of training as one plan: forward and backward pass of each part, clipping, update.
import { type ElementArray, type ElementType, elementArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import type { TrainableAdapter } from '../dora/adapter.js'
import { differentiate } from '../graph/gradients/differentiate.js'
import { type Graph, makeGraph } from '../graph/graph.js'
import { accumulate, partName } from '../graph/rewrites/accumulate.js'
import { chooseBranches } from '../graph/rewrites/branches.js'
import { addClip } from '../graph/rewrites/clip.js'
import { addDropout, dropoutState } from '../graph/rewrites/dropout.js'
import { addLoss, type Loss } from '../graph/rewrites/losses.js'
import { recompute } from '../graph/rewrites/recompute.js'
import { addTeacher } from '../graph/rewrites/teacher.js'
import { isRecurrent, unroll } from '../graph/rewrites/unroll.js'
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
  /** Key of the random numbers of dropout. */
  readonly seed: number
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

/** A graph that computes a loss. */
interface ForwardPass {
  readonly graph: Graph
  readonly loss: string
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
  readonly #forward: ForwardPass
  readonly #passes = new Map<string, Passes>()
  readonly #inputs: readonly string[]
  readonly #drops: boolean
  readonly #plans = new Map<string, { plan: Plan; step: WholeStep }>()
  #state: State
  #current: Plan | undefined

  /** @throws SparkError as {@link addLoss} and {@link differentiate} */
  constructor(options: StepOptions, kernels: Kernels) {
    this.#options = options
    this.#kernels = kernels
    this.#forward = forwardOf(options)
    const { graph } = this.#forward
    const inputs = graph.inputs.map(({ name }) => name).filter(name => !graph.initializers.has(name))
    this.#inputs = inputs.filter(name => name !== dropoutState)
    this.#drops = inputs.includes(dropoutState)
    this.#state = firstState(options)
    // What cannot be differentiated is said before any data are read.
    if (!dependsOnSizes(graph)) this.#passesOf({})
  }

  /** Names of what a batch must contain. */
  get inputs(): readonly string[] {
    return this.#inputs
  }

  /** Bytes that the plan of the last step uses for values in between. */
  get planBytes(): number {
    return this.#current?.stats.arenaBytes ?? 0
  }

  /** Parameters and the optimizer's state: a copy. */
  get state(): State {
    const plan = this.#current
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
  set state(state: State) {
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
    this.#enter(plan)
    const { optimizer, seed } = this.#options
    const feeds: Record<string, ElementArray> = { ...optimizer.feeds(rate, step) }
    parts.forEach((batch, part) => {
      if (this.#drops) feeds[inputName(dropoutState, part, parts.length)] = Uint32Array.of(seed, step, part)
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
    const { graph } = this.#wholeStep(this.#passesFor(parts), parts.map(batchSizeOf))
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
  #enter(plan: Plan): void {
    if (plan === this.#current) return
    for (const [name, values] of this.state) (plan.state(name) as Float32Array).set(values)
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
  #passesFor(parts: readonly Batch[]): Passes {
    if (!dependsOnSizes(this.#forward.graph)) return this.#passesOf({})
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

  #passesOf(shapes: Readonly<Record<string, readonly number[]>>): Passes {
    const key = JSON.stringify(shapes)
    const passes = this.#passes.get(key) ?? passesOf(this.#forward, this.#options.adapter.parameters, shapes)
    this.#passes.set(key, passes)
    return passes
  }

  /** The step that recomputes as little as the memory budget allows, or with the smallest need when none fits. */
  #fittingStep(parts: readonly Batch[], shapes: Readonly<Record<string, readonly number[]>>): WholeStep {
    const { memoryBudget = Number.POSITIVE_INFINITY } = this.#options
    const [passes, sizes] = [this.#passesFor(parts), parts.map(batchSizeOf)]
    if (memoryBudget === Number.POSITIVE_INFINITY) return this.#wholeStep(passes, sizes)
    const most = Math.max(1, Math.ceil(2 * Math.sqrt(passes.forward)))
    let [best, least] = [this.#wholeStep(passes, sizes), Number.POSITIVE_INFINITY]
    for (let segments = 1; segments <= most && least > memoryBudget; segments++) {
      const step = this.#wholeStep(passes, sizes, segments)
      const { arenaBytes } = compile(step.graph, { shapes })
      if (arenaBytes < least) [best, least] = [step, arenaBytes]
    }
    return best
  }

  /** The graph of a step over parts of these sizes. */
  #wholeStep(passes: Passes, sizes: readonly number[], segments = 1): WholeStep {
    const { loss, gradients, forward } = passes
    const total = sizes.reduce((sum, size) => sum + size, 0)
    const weights = sizes.map(size => size / total)
    const values = [loss, ...gradients.values()]
    const graph = segments === 1 ? passes.graph : recompute(passes.graph, { forward, segments })
    const inputs = [...this.#inputs, ...(this.#drops ? [dropoutState] : [])]
    const summed = sizes.length === 1 ? graph : accumulate(graph, { inputs, values, weights })
    const clipped = addClip(summed, gradients, this.#options.maxNorm)
    const updated = this.#options.optimizer.append(clipped.graph, clipped.gradients)
    const outputs = [loss, clipped.norm].map(name => ({ name }))
    return { graph: { ...updated, outputs }, loss, norm: clipped.norm }
  }
}

/** Name of an input in the graph of a step over `count` parts. */
const inputName = (name: string, part: number, count: number): string =>
  count === 1 ? name : partName(name, part)

/** Dropout, teacher and loss. */
function forwardOf({ adapter, loss, teacher }: StepOptions): ForwardPass {
  const { dropout = 0 } = adapter
  const student = dropout > 0 ? addDropout(adapter.graph, dropout) : adapter.graph
  const { graph, values } = teacher
    ? addTeacher(student, teacher)
    : { graph: student, values: new Map<string, string>() }
  return addLoss(graph, loss, values)
}

/** Whether the nodes that run depend on the sizes of the inputs. */
const dependsOnSizes = ({ nodes }: Graph): boolean =>
  nodes.some(node => isRecurrent(node) || (node.domain === '' && node.op === 'If'))

/** Branches and steps as the sizes of the inputs say, and gradients. */
function passesOf(
  { graph, loss }: ForwardPass,
  parameters: readonly string[],
  shapes: Readonly<Record<string, readonly number[]>>,
): Passes {
  const flat = unroll(chooseBranches(graph, { shapes }), { shapes })
  return { ...differentiate(flat, { loss, wrt: [...parameters] }), forward: flat.nodes.length, loss }
}

const sameNodes = (a: Graph, b: Graph): boolean =>
  a.nodes.length === b.nodes.length &&
  a.nodes.every(({ op, inputs }, i) => op === b.nodes[i]!.op && inputs.join() === b.nodes[i]!.inputs.join())

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
