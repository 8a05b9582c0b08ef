// environment.ts: scenarios that somebody else decides in, step by step.
import {
  argumentError,
  expectBoolean,
  expectInteger,
  expectKnownOptions,
  expectOneOf,
  expectShape,
} from '../core/checks.js'
import { backendNames } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { philox } from '../core/philox.js'
import { openKernels } from '../kernels/open.js'
import { Tensor } from '../memory/tensor.js'
import { ScenarioBatch } from './batch.js'
import type { EnvironmentOptions } from './environment-options.js'
import { readScenarios } from './scenarios.js'
import { dependsOnBatch, stepGraph } from './step-graph.js'
import type { ActionRange, ScenarioStart, World } from './world.js'

/** What an environment gives after a step. Shapes are [scenarios], or [scenarios, agents] in a world of several agents. */
export interface EnvironmentStep {
  /** What agents see now, [scenarios, observations] or [scenarios, agents, observations]: of scenarios that began anew what they see first. */
  readonly observations: Tensor<'f32'>
  /** Rewards of the step. */
  readonly rewards: Tensor<'f32'>
  /** 1 where a scenario ended for an agent, by a collision for example. */
  readonly ended: Tensor<'u8'>
  /** 1 where the time of the scenario was over. */
  readonly truncated: Tensor<'u8'>
  /** 1 where the scenario began anew. */
  readonly reset: Tensor<'u8'>
  /** What agents saw at the end of scenarios that began anew, and else what they see. Shape of `observations`. */
  readonly finalObservations: Tensor<'f32'>
}

/** Scenarios that advance together with the actions of a caller. Made by `createEnvironment`. One call at a time. */
export class Environment<S = unknown> implements Disposable {
  /** Names of what agents see, in the order of the columns. */
  readonly observations: readonly string[]
  /** What agents do, in the order of the columns, with the limits that actions are clipped to. */
  readonly actions: Readonly<Record<string, ActionRange>>
  /** Scenarios. */
  readonly count: number
  /** Agents of each scenario. */
  readonly agents: number
  readonly #options: EnvironmentOptions<S>
  readonly #world: World<S>
  readonly #batchOf: (start: ScenarioStart, steps: number) => Promise<ScenarioBatch>
  #batch: ScenarioBatch | undefined
  #seeds: number[] = []
  #isBusy = false
  #isDisposed = false

  private constructor(
    options: EnvironmentOptions<S>,
    world: World<S>,
    batchOf: (start: ScenarioStart, steps: number) => Promise<ScenarioBatch>,
  ) {
    this.#options = options
    this.#world = world
    this.#batchOf = batchOf
    this.observations = world.observations
    this.actions = world.actions
    this.count = options.count
    this.agents = world.agents ?? 1
  }

  /** @internal */
  static async create<S>(options: EnvironmentOptions<S>): Promise<Environment<S>> {
    expectKnownOptions('options', options, [
      'count',
      'scenario',
      'reward',
      'world',
      'autoReset',
      'nextSeed',
      'maximumSteps',
      'device',
    ])
    const { count, scenario, reward, autoReset = true, maximumSteps, device = 'auto' } = options
    expectInteger('options.count', count, 1, 2 ** 24)
    if (typeof scenario !== 'function')
      throw argumentError('options.scenario', 'a function of a seed', scenario)
    if (typeof reward !== 'function') throw argumentError('options.reward', 'a function of measures', reward)
    expectBoolean('options.autoReset', autoReset)
    if (maximumSteps !== undefined) expectInteger('options.maximumSteps', maximumSteps, 1, 2 ** 24)
    expectOneOf('options.device', device, backendNames)
    const { drivingWorld } = await import('./driving.js')
    const world = options.world ?? (drivingWorld() as unknown as World<S>)
    const kernels = await openKernels({ backend: device })
    const rows = count * (world.agents ?? 1)
    const batchOf = (start: ScenarioStart, steps: number): Promise<ScenarioBatch> => {
      const parts = { world: world as World, parts: undefined, metrics: {}, start, records: false, reward }
      const step = stepGraph(parts, dependsOnBatch(parts) ? rows : 'n')
      return ScenarioBatch.create(step, kernels, rows, steps)
    }
    return new Environment(options, world, batchOf)
  }

  /**
   * All scenarios begin.
   * @param seeds - one for each. Default: 0, 1, 2 …
   * @returns what agents see
   * @throws SparkError ERR_ARGUMENT for a wrong number of seeds or a scenario that is wrong; ERR_DISPOSED
   */
  async reset(seeds?: readonly number[]): Promise<Pick<EnvironmentStep, 'observations'>> {
    return this.#alone(async () => {
      const given = seeds ?? Array.from({ length: this.count }, (_, i) => i)
      if (!Array.isArray(given) || given.length !== this.count)
        throw argumentError('seeds', `a list of ${this.count} integers`, given)
      for (const [i, seed] of given.entries()) expectInteger(`seeds[${i}]`, seed, 0)
      const starts = await this.#starts(given)
      const longest = Math.max(...starts.map(({ steps }) => steps))
      const steps = this.#batch
        ? Math.max(this.#batch.steps, longest)
        : (this.#options.maximumSteps ?? longest)
      if (this.#batch?.steps !== steps) {
        this.#batch?.dispose()
        this.#batch = await this.#batchOf(starts[0]!, steps)
      }
      await this.#batch.begin(starts)
      await this.#batch.store()
      this.#seeds = [...given]
      return { observations: this.#tensor(await this.#look()) }
    })
  }

  /**
   * All agents act, and a step goes by.
   * @param actions - [scenarios, actions] or [scenarios, agents, actions] f32; numbers beyond the limits are clipped
   * @throws SparkError ERR_ARGUMENT before a reset, while another call is in progress, and for a scenario that is wrong;
   * ERR_SHAPE; ERR_DISPOSED
   */
  async step(actions: Tensor<'f32'> | Float32Array): Promise<EnvironmentStep> {
    return this.#alone(async () => {
      if (!this.#batch)
        throw new SparkError('ERR_ARGUMENT', 'the environment has not begun: call reset() first')
      const rows = this.count * this.agents
      const names = Object.keys(this.actions)
      const data = this.#expectActions(actions, names.length)
      const feeds: Record<string, Float32Array> = { advance: new Float32Array(rows).fill(1) }
      for (const [column, name] of names.entries())
        feeds[`action/${name}`] = Float32Array.from(
          { length: rows },
          (_, row) => data[row * names.length + column]!,
        )
      const result = Float32Array.from(await this.#batch.step(feeds))
      const width = this.observations.length + 3
      const column = (i: number): Float32Array =>
        Float32Array.from({ length: rows }, (_, row) => result[row * width + i]!)
      const [rewards, reasons, over] = [width - 3, width - 2, width - 1].map(column) as [
        Float32Array,
        Float32Array,
        Float32Array,
      ]
      const begun = this.#options.autoReset === false ? [] : await this.#beginAnew(reasons, over)
      const seen = begun.length === 0 ? result : await this.#look()
      const flags = (values: Float32Array): Tensor<'u8'> =>
        Tensor.from(
          Uint8Array.from(values, value => Number(value !== 0)),
          { dtype: 'u8', shape: this.#shape() },
        )
      return {
        observations: this.#tensor(seen),
        rewards: Tensor.from(rewards, { shape: this.#shape() }),
        ended: flags(reasons),
        truncated: flags(over.map((value, row) => (reasons[row] ? 0 : value))),
        reset: Tensor.from(
          Uint8Array.from({ length: this.count }, (_, i) => Number(begun.includes(i))),
          {
            dtype: 'u8',
            shape: [this.count],
          },
        ),
        finalObservations: this.#tensor(result),
      }
    })
  }

  /** Frees what the device holds. A second dispose is a no-op. */
  dispose(): void {
    this.#isDisposed = true
    this.#batch?.dispose()
    this.#batch = undefined
  }

  /** As {@link Environment.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  #shape(...last: readonly number[]): number[] {
    return this.agents === 1 ? [this.count, ...last] : [this.count, this.agents, ...last]
  }

  /** The observations of a result. */
  #tensor(result: Float32Array): Tensor<'f32'> {
    const [columns, width] = [this.observations.length, this.observations.length + 3]
    const rows = this.count * this.agents
    const seen = new Float32Array(rows * columns)
    for (let row = 0; row < rows; row++)
      seen.set(result.subarray(row * width, row * width + columns), row * columns)
    return Tensor.from(seen, { shape: this.#shape(columns) })
  }

  /** A result in which nothing has moved. */
  async #look(): Promise<Float32Array> {
    const rows = this.count * this.agents
    const names = ['advance', ...Object.keys(this.actions).map(name => `action/${name}`)]
    const nothing = new Float32Array(rows)
    const result = await this.#batch!.step(Object.fromEntries(names.map(name => [name, nothing])))
    return Float32Array.from(result)
  }

  /** Begins scenarios anew that have ended for all agents; their indices. */
  async #beginAnew(reasons: Float32Array, over: Float32Array): Promise<number[]> {
    const ends = (i: number): boolean => {
      const rows = Array.from({ length: this.agents }, (_, agent) => i * this.agents + agent)
      return rows.every(row => reasons[row] !== 0 || over[row] !== 0)
    }
    const ended = Array.from({ length: this.count }, (_, i) => i).filter(ends)
    if (ended.length === 0) return ended
    const next = this.#options.nextSeed ?? hashed
    for (const i of ended) this.#seeds[i] = next(this.#seeds[i]!)
    const starts = await this.#starts(ended.map(i => this.#seeds[i]!))
    await this.#batch!.fetch()
    for (const [k, i] of ended.entries())
      for (let agent = 0; agent < this.agents; agent++)
        this.#batch!.beginRow(i * this.agents + agent, starts[k * this.agents + agent]!)
    await this.#batch!.store()
    return ended
  }

  /** How scenarios begin, a row for each agent. */
  async #starts(seeds: readonly number[]): Promise<ScenarioStart[]> {
    const scenarios = seeds.map(seed => this.#options.scenario(seed))
    const { starts, failed } = await readScenarios(this.#world, scenarios)
    const [first] = failed
    if (first)
      throw new SparkError(
        first.error.code,
        `the scenario of seed ${seeds[first.index]}: ${first.error.message}`,
      )
    return [...starts.keys()].flatMap(i =>
      Array.from({ length: this.agents }, (_, agent) =>
        agent === 0 ? starts.get(i)!.start() : this.#world.begin(scenarios[i]!, agent),
      ),
    )
  }

  #expectActions(actions: Tensor<'f32'> | Float32Array, columns: number): Float32Array {
    const shape = this.#shape(columns)
    const data = actions instanceof Tensor ? actions.data : actions
    if (!(data instanceof Float32Array)) throw argumentError('actions', 'a tensor of f32', actions)
    if (actions instanceof Tensor) expectShape('actions', actions.shape, shape)
    if (data.length !== shape.reduce((a, b) => a * b))
      throw argumentError('actions', `[${shape.join(', ')}] numbers`, data, 'ERR_SHAPE')
    return data
  }

  async #alone<T>(work: () => Promise<T>): Promise<T> {
    if (this.#isDisposed) throw new SparkError('ERR_DISPOSED', 'the environment has been disposed')
    if (this.#isBusy)
      throw new SparkError('ERR_ARGUMENT', 'the environment is busy: wait for the call before')
    this.#isBusy = true
    try {
      return await work()
    } finally {
      this.#isBusy = false
    }
  }
}

/** A seed that follows from another one alone. */
const hashed = (seed: number): number =>
  philox([1, 0, 0, 0], [seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0])[0]!
