// batch.ts: the plan of a batch of scenarios, and its states on the host.
import { SparkError } from '../core/errors.js'
import { Pacer } from '../core/paced.js'
import { numel } from '../core/shape.js'
import type { Kernels } from '../kernels/kernels.js'
import { rewriteForInference } from '../pipeline.js'
import { Plan } from '../plan/plan.js'
import type { StepGraph } from './step-graph.js'
import type { Numbers, ScenarioStart } from './world.js'

/** Scenarios that advance together. Their states lie on the device; {@link ScenarioBatch.fetch} and `store` move them. */
export class ScenarioBatch implements Disposable {
  /** How many. */
  readonly count: number
  /** The most steps that one of them may have. */
  readonly steps: number
  readonly #plan: Plan
  readonly #step: StepGraph

  private constructor(plan: Plan, step: StepGraph, count: number, steps: number) {
    this.#plan = plan
    this.#step = step
    this.count = count
    this.steps = steps
  }

  /**
   * Compiles a step for so many scenarios.
   * @throws SparkError as {@link Plan.create}
   */
  static async create(
    step: StepGraph,
    kernels: Kernels,
    count: number,
    steps: number,
  ): Promise<ScenarioBatch> {
    const sizes = (name: string, own: readonly number[]): readonly number[] => {
      if (name === 'clock' || name === 'length') return own
      if (name === 'timeline') return [steps, count, ...own]
      return name === 'record' ? [count, steps, ...own] : [count, ...own]
    }
    const shapes: Record<string, readonly number[]> = {}
    for (const [name, state] of step.states) shapes[name] = sizes(name, state.sizes)
    const states = new Map([...step.states.keys()].map(name => [name, { axis: undefined, capacity: 1 }]))
    for (const { name } of step.graph.inputs) if (!step.states.has(name)) shapes[name] = [count, 1]
    const graph = await rewriteForInference('compile', step.graph, {})
    const plan = await Plan.create(graph, kernels, { shapes, states })
    return new ScenarioBatch(plan, step, count, steps)
  }

  /** All scenarios begin; call {@link ScenarioBatch.store} then. */
  async begin(starts: readonly ScenarioStart[], pacer = new Pacer()): Promise<void> {
    this.#integers('clock')[0] = 0n
    this.#integers('length')[0] = BigInt(this.steps)
    for (const [row, start] of starts.entries()) {
      await pacer.pause()
      this.beginRow(row, start)
    }
  }

  /** One scenario begins, at the step at which the clock is for all. */
  beginRow(row: number, start: ScenarioStart): void {
    if (start.steps > this.steps)
      throw new SparkError('ERR_ARGUMENT', `scenario '${start.name}' has more than ${this.steps} steps`)
    const given = new Map<string, Numbers>([
      ['steps', start.steps],
      ...entriesOf('state', start.states),
      ...entriesOf('parameter', start.parameters),
    ])
    for (const [name, { sizes, first }] of this.#step.states) {
      if (name === 'clock' || name === 'length') continue
      if (name === 'timeline') this.#fillTimeline(row, start)
      else if (name === 'record')
        this.record.fill(Number.NaN, row * this.#recordSize, (row + 1) * this.#recordSize)
      else if (name === 'row') this.#integers('row')[row] = 0n
      else this.#fill(name, row, numel(sizes), given.get(name) ?? first, start.name)
    }
  }

  /** A state as it was fetched last: [scenarios, columns]. */
  read(name: string): Float32Array {
    return this.#plan.state(name) as Float32Array
  }

  /** What was recorded, [scenarios, steps, names]. */
  get record(): Float32Array {
    return this.read('record')
  }

  /**
   * One step of an environment.
   * @param feeds - numbers of each scenario for the inputs
   * @returns the output `result`, [scenarios, columns]: memory that the next step writes over
   */
  async step(feeds: Readonly<Record<string, Float32Array>>): Promise<Float32Array> {
    return (await this.#plan.run(feeds)).result as Float32Array
  }

  /** Hands the states to the device. */
  async store(): Promise<void> {
    await this.#plan.storeState()
  }

  /** Brings the states back. */
  async fetch(): Promise<void> {
    await this.#plan.fetchState()
  }

  /** Advances all scenarios by so many steps in one call, which a signal ends. */
  async run(steps: number, signal?: AbortSignal): Promise<void> {
    await this.#plan.runBound(steps, signal)
  }

  /** Frees the plan. */
  dispose(): void {
    this.#plan.dispose()
  }

  /** As {@link ScenarioBatch.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  get #recordSize(): number {
    return this.steps * this.#step.recorded.length
  }

  #integers(name: string): BigInt64Array {
    return this.#plan.state(name) as unknown as BigInt64Array
  }

  #fill(name: string, row: number, columns: number, numbers: Numbers, scenario: string): void {
    const state = this.#plan.state(name) as Float32Array
    if (typeof numbers !== 'number' && numbers.length !== columns)
      throw new SparkError(
        'ERR_SHAPE',
        `scenario '${scenario}': ${name} has ${numbers.length} numbers, and ${columns} in the first one`,
      )
    if (typeof numbers === 'number') state.fill(numbers, row * columns, (row + 1) * columns)
    else state.set(numbers, row * columns)
  }

  #fillTimeline(row: number, { timeline, steps }: ScenarioStart): void {
    const all = this.#plan.state('timeline') as Float32Array
    const names = this.#step.timeline
    const clock = Number(this.#integers('clock')[0])
    for (const [column, name] of names.entries()) {
      const values = timeline[name]!
      for (let step = 0; step < this.steps; step++)
        all[(((clock + step) % this.steps) * this.count + row) * names.length + column] =
          values[Math.min(step, steps - 1)]!
    }
  }
}

const entriesOf = (kind: string, values: Readonly<Record<string, Numbers>>): [string, Numbers][] =>
  Object.entries(values).map(([name, numbers]) => [`${kind}/${name}`, numbers])
