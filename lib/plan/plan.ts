// plan.ts: a compiled graph on a backend.
import type { ElementArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { atOnce, Pacer } from '../core/paced.js'
import { fixedSizes, type SizeValues } from '../core/size-scope.js'
import type { Graph } from '../graph/graph.js'
import type { Kernels, PreparedSteps } from '../kernels/kernels.js'
import { type BindContext, type BindOptions, type BoundProgram, type BufferArrays, bind } from './bind.js'
import { Blueprint } from './blueprint.js'
import { type CompileOptions, compilePaced, optionsFor } from './compile.js'
import { feed } from './feed.js'
import { type Folded, fold } from './folded.js'
import { prepare } from './prepare.js'
import { type Binding, type Buffer, constantBytesOf, operandsOf, type Program } from './program.js'
import type { SharedArena } from './shared-arena.js'
import { type StepTime, stepFlops } from './step-time.js'

/** Options of {@link Plan.create}. */
export interface PlanOptions extends CompileOptions, BindOptions {}

/** What a plan is made of. */
export interface PlanStats {
  /** Kernel calls of a run. */
  readonly steps: number
  /** Kernel calls that were made before the first run, on constants. */
  readonly setupSteps: number
  /** Bytes for values in between. */
  readonly arenaBytes: number
  /** The most bytes of them that are alive at once. */
  readonly lowerBound: number
  /** Bytes of weights and other constants that a run reads. */
  readonly constantBytes: number
}

/** Memory of plans of a {@link PlanTemplate}. Those of one arena never run at the same time, and share inputs and outputs, too. */
export interface TemplateMemory extends Pick<BindContext, 'arena' | 'states'> {
  /** A plan of the template that does not run: it is bound to the sizes instead of a new one. */
  readonly over?: Plan | undefined
}

/** A graph, compiled for all sizes for which the guards of their scope hold, with its weights: plans are bound to it. */
export class PlanTemplate implements Disposable {
  /** What it runs. */
  readonly program: Program
  /** How many plans for different sizes are worth their memory: one, where other sizes are a single native call. */
  readonly plansToKeep: number
  readonly #kernels: Kernels
  readonly #folded: Folded
  readonly #options: BindOptions
  /** Memory for inputs and outputs of plans that share an arena. */
  readonly #areas = new Map<Buffer, SharedArena>()
  #blueprint: Blueprint | undefined

  private constructor(program: Program, kernels: Kernels, folded: Folded, options: BindOptions) {
    this.program = program
    this.plansToKeep = kernels.blueprint ? 1 : 4
    this.#kernels = kernels
    this.#folded = folded
    this.#options = options
  }

  /**
   * Compiles `graph` and runs what depends on its constants only.
   * @param pacer - lets the event loop turn in between, and ends the compilation when its signal is aborted
   * @throws SparkError as {@link compile}, and ERR_UNSUPPORTED when the backend lacks an operation
   */
  static async compile(
    graph: Graph,
    kernels: Kernels,
    options: PlanOptions = {},
    pacer = new Pacer(),
  ): Promise<PlanTemplate> {
    const program = await pacer.do(compilePaced(graph, { ...optionsFor(kernels), ...options }))
    return new PlanTemplate(program, kernels, await fold(program, options, kernels, pacer), options)
  }

  /**
   * A plan for some sizes, which may outlive the template.
   * @param values - of the sizes; left out where all of them are numbers
   * @throws SparkError ERR_OUT_OF_MEMORY
   */
  async bind(
    values: SizeValues = fixedSizes,
    pacer = new Pacer(),
    memory: TemplateMemory = {},
  ): Promise<Plan> {
    const folded = memory.over ? undefined : this.#folded.share()
    try {
      return await this.#bind(values, pacer, memory, folded)
    } catch (error) {
      folded?.dispose()
      memory.over?.dispose()
      throw error
    }
  }

  /** @param held - for a new plan */
  async #bind(
    values: SizeValues,
    pacer: Pacer,
    { over, ...memory }: TemplateMemory,
    held: Folded | undefined,
  ): Promise<Plan> {
    const [{ program }, { arrays: folded }, kernels] = [this, this.#folded, this.#kernels]
    const context = {
      values,
      folded,
      kernels,
      areas: memory.arena && this.#areas,
      ...memory,
      over: over?.arrays,
    }
    const bound = await pacer.do(bind(program, this.#options, context))
    if (program.sizing.length > 0) {
      const sizing = await prepare(this.#kernels, await pacer.do(bound.bind(program.sizing)), pacer)
      try {
        await sizing.run()
      } finally {
        sizing.dispose()
      }
    }
    const steps = await this.#prepared(bound, values, pacer, over)
    if (!over) return new Plan(program, bound, values, this.#kernels, steps, held!)
    over.rebind(bound, values, steps)
    return over
  }

  /** The steps for some sizes. What is bound once only need not be read for all of them. */
  async #prepared(
    bound: BoundProgram,
    values: SizeValues,
    pacer: Pacer,
    over: Plan | undefined,
  ): Promise<PreparedSteps> {
    const [{ program }, kernels] = [this, this.#kernels]
    if (values === fixedSizes || !kernels.blueprint || this.#options.double)
      return prepare(kernels, await pacer.do(bound.bind(program.steps)), pacer, bound.memory())
    this.#blueprint ??= await pacer.do(Blueprint.read(program, this.#folded.arrays, kernels))
    return pacer.do(this.#blueprint.bind(values, bound, over?.steps))
  }

  /** Lets the weights go: plans that were bound keep theirs. A second dispose is a no-op. */
  dispose(): void {
    this.#folded.dispose()
    this.#blueprint?.dispose()
    this.#blueprint = undefined
  }

  /** As {@link PlanTemplate.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }
}

/**
 * A graph, compiled and bound to memory on a backend. A run is one call of the backend.
 *
 * @example
 * const plan = await Plan.create(graph, jsKernels, { shapes: { x: [64, 784] } })
 * const { y } = await plan.run({ x: new Float32Array(64 * 784) })
 * plan.dispose()
 */
export class Plan implements Disposable {
  readonly #program: Program
  #bound: BoundProgram
  #values: SizeValues
  readonly #kernels: Kernels
  #steps: PreparedSteps | undefined
  readonly #folded: Folded
  #running = false

  /** @internal */
  constructor(
    program: Program,
    bound: BoundProgram,
    values: SizeValues,
    kernels: Kernels,
    steps: PreparedSteps,
    folded: Folded,
  ) {
    this.#program = program
    this.#bound = bound
    this.#values = values
    this.#kernels = kernels
    this.#steps = steps
    this.#folded = folded
  }

  /** @internal */
  get arrays(): BufferArrays {
    return this.#bound.arrays
  }

  /** @internal */
  get steps(): PreparedSteps | undefined {
    return this.#steps
  }

  /**
   * Takes other sizes, with all that was bound to them.
   * @internal
   */
  rebind(bound: BoundProgram, values: SizeValues, steps: PreparedSteps): void {
    if (this.#steps !== steps) this.#steps?.dispose()
    this.#bound = bound
    this.#values = values
    this.#steps = steps
  }

  /**
   * Compiles `graph` for sizes that are numbers, and runs what depends on its constants only.
   * @param pacer - lets the event loop turn in between, and ends the compilation when its signal is aborted
   * @throws SparkError as {@link compile}, and ERR_UNSUPPORTED when the backend lacks an operation or has no plans
   */
  static async create(
    graph: Graph,
    kernels: Kernels,
    options: PlanOptions = {},
    pacer = new Pacer(),
  ): Promise<Plan> {
    using template = await PlanTemplate.compile(graph, kernels, options, pacer)
    return await template.bind(fixedSizes, pacer)
  }

  /** Names, types and sizes of the inputs. */
  get inputs(): readonly Binding[] {
    return this.#bound.inputs
  }

  /** Names, types and sizes of the outputs. */
  get outputs(): readonly Binding[] {
    return this.#bound.outputs
  }

  /** Bytes that only this plan holds. */
  get bytes(): number {
    return this.#bound.arrays.bytesOf(this.#program.own)
  }

  /** Numbers for reports. */
  get stats(): PlanStats {
    const { steps, setup, sizing } = this.#program
    const constantBytes = constantBytesOf(this.#program)
    const { arenaBytes, lowerBound } = this.#bound.layout
    const setupSteps = setup.length + sizing.length
    return { steps: steps.length, setupSteps, arenaBytes, lowerBound, constantBytes }
  }

  /**
   * Runs the plan.
   * @param feeds - the elements of each input by its name, row-major
   * @param signal - ends the run where it holds the JavaScript thread up
   * @returns the elements of each output: views of the plan's memory, which the next run overwrites
   * @throws SparkError ERR_ARGUMENT for an input that is missing, unknown or of another type, or while a run is in
   * progress; ERR_SHAPE for a wrong number of elements; ERR_DISPOSED
   */
  async run(
    feeds: Readonly<Record<string, ElementArray>> = {},
    signal?: AbortSignal,
  ): Promise<Record<string, ElementArray>> {
    await this.#alone(steps => {
      feed(this.#bound, feeds)
      return steps.run(signal)
    })
    return Object.fromEntries(this.outputs.map(({ name, buffer }) => [name, this.#bound.arrayOf(buffer)]))
  }

  /**
   * Runs the plan and measures each step, on the inputs of the last run. State moves on with each run.
   * @param runs - how often
   * @throws SparkError ERR_ARGUMENT while a run is in progress, ERR_DISPOSED
   */
  async profile(runs = 5): Promise<StepTime[]> {
    const best = new Float64Array(this.#program.steps.length).fill(Number.POSITIVE_INFINITY)
    await this.#alone(async steps => {
      for (let run = 0; run < runs; run++) {
        const times = steps.profile ? await steps.profile() : await this.#stepTimes()
        for (const [i, time] of times.entries()) best[i] = Math.min(best[i]!, time)
      }
    })
    return this.#program.steps.map((step, i) => {
      const { op, node = '', args } = step
      const sizes = Array.from(operandsOf(args), ({ count }) => this.#values.of(count))
      return { op, node, sizes, flops: this.#values.of(stepFlops(step)), ms: best[i]! }
    })
  }

  /** Milliseconds of each step as a call of its own. */
  async #stepTimes(): Promise<number[]> {
    const times: number[] = []
    for (const step of atOnce(this.#bound.bind(this.#program.steps))) {
      const prepared = this.#kernels.prepare([step])
      try {
        const start = performance.now()
        await prepared.run()
        times.push(performance.now() - start)
      } finally {
        prepared.dispose()
      }
    }
    return times
  }

  /**
   * Milliseconds that the last run took on a device, by its events; null on other backends, and before the first run behind the
   * first call, which begins to measure.
   * @throws SparkError ERR_ARGUMENT while a run is in progress
   */
  get deviceMs(): number | null {
    return this.#steps?.deviceMs?.() ?? null
  }

  /**
   * Runs the plan on what is in its inputs.
   * @param times - how often, by default once: states move on from run to run, outputs are those of the last one
   * @param signal - ends repeated runs after the one in progress
   * @throws SparkError ERR_ARGUMENT while a run is in progress, ERR_DISPOSED; the reason of the signal
   */
  async runBound(times = 1, signal?: AbortSignal): Promise<void> {
    await this.#alone(steps => steps.run(signal, times))
  }

  /** The weights and other constants that a run reads; plans of one model share some. */
  get constants(): readonly ElementArray[] {
    return this.#bound.constants()
  }

  /** The elements of an input or output, in the memory that runs read and write. */
  arrayOf({ buffer }: Binding): ElementArray {
    return this.#bound.arrayOf(buffer)
  }

  /**
   * The elements of a state, such as a parameter that an optimizer changes. They may be read and written between runs:
   * read after {@link Plan.fetchState}, and followed by {@link Plan.storeState}.
   * @throws SparkError ERR_ARGUMENT when there is no such state
   */
  state(name: string): ElementArray {
    const binding = this.#bound.state.find(binding => binding.name === name)
    if (!binding) throw new SparkError('ERR_ARGUMENT', `the plan has no state '${name}'`)
    return this.#bound.arrayOf(binding.buffer)
  }

  /**
   * Brings all states to where {@link Plan.state} reads them: a GPU keeps them to itself from run to run.
   * @throws SparkError ERR_ARGUMENT while a run is in progress, ERR_DISPOSED
   */
  async fetchState(): Promise<void> {
    await this.#alone(steps => steps.fetch())
  }

  /**
   * Hands all states, as they were written to {@link Plan.state}, to the backend.
   * @throws SparkError ERR_ARGUMENT while a run is in progress, ERR_DISPOSED
   */
  async storeState(): Promise<void> {
    await this.#alone(steps => steps.store())
  }

  /** Frees what the backend holds. A second dispose is a no-op. */
  dispose(): void {
    this.#steps?.dispose()
    this.#steps = undefined
    this.#folded.dispose()
  }

  /** As {@link Plan.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  /** Does something with the steps while nobody else does: all runs share their operands. */
  async #alone(work: (steps: PreparedSteps) => Promise<void> | undefined): Promise<void> {
    if (!this.#steps) throw new SparkError('ERR_DISPOSED', 'the plan has been disposed')
    if (this.#running) {
      const remedy = 'wait for its promise, or make another plan'
      throw new SparkError('ERR_ARGUMENT', `the plan is running: ${remedy}`)
    }
    this.#running = true
    try {
      await work(this.#steps)
    } finally {
      this.#running = false
    }
  }
}
