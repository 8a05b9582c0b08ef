// step-graph.ts: one step of all scenarios of a batch as a graph whose states a plan carries on.
import type { Dimension, Graph } from '../graph/graph.js'
import {
  type Actions,
  type AlgorithmPart,
  expectActions,
  namedValues,
  type PolicyWithMemory,
} from './algorithm.js'
import { addModel, forBatch, hasFixedBatch, memoryOf } from './model-graph.js'
import { expectTraced, type Traced, type TracedOperand, Tracer } from './traced.js'
import type { Metric, Numbers, ScenarioStart, TracedValues, World, WorldChange } from './world.js'

/** What a step is made of. */
export interface StepParts {
  readonly world: World
  /** What decides; undefined: inputs called `action/…` do, see {@link StepParts.reward}. */
  readonly parts: readonly AlgorithmPart[] | undefined
  readonly metrics: Readonly<Record<string, Metric>>
  /** A scenario, for the sizes of what the world keeps. */
  readonly start: ScenarioStart
  /** Whether observations, actions and measures of each step are kept. */
  readonly records: boolean
  /**
   * For an environment: the reward. There is an input `advance` then, 0 where nothing moves, and an output `result`: the observations
   * after the step, the reward, why it has ended or 0, and whether its time is over.
   */
  readonly reward?: (measures: TracedValues) => TracedOperand
}

/** A value that is carried on, or stays. */
export interface StepState {
  /** Sizes behind the first one, which is that of scenarios, or all sizes for the clock and the timeline. */
  readonly sizes: readonly number[]
  /** First values where no scenario says them. */
  readonly first: number | readonly number[]
}

/** A step as a graph. */
export interface StepGraph {
  readonly graph: Graph
  /** States by name, [scenarios, ...sizes] f32, but for `clock` and `timeline`. */
  readonly states: ReadonlyMap<string, StepState>
  /** Names of the columns of the timeline. */
  readonly timeline: readonly string[]
  /** Names of what is recorded. */
  readonly recorded: readonly string[]
}

/** Whether the graph of a step has to be made for each batch size. */
export const dependsOnBatch = ({ world, parts }: Pick<StepParts, 'world' | 'parts'>): boolean =>
  [world.model, ...(parts ?? []).map(part => ('graph' in part ? part.graph : undefined))].some(
    graph => graph !== undefined && hasFixedBatch(graph),
  )

/** Writes a step down. */
export function stepGraph(parts: StepParts, batch: number | 'n'): StepGraph {
  return new StepWriter(parts, batch).write()
}

const columnsOf = (numbers: Numbers): number => (typeof numbers === 'number' ? 1 : numbers.length)

class StepWriter {
  readonly #parts: StepParts
  readonly #batch: number | 'n'
  readonly #tracer = new Tracer()
  readonly #states = new Map<string, StepState>()
  readonly #updates = new Map<string, Traced>()
  readonly #moves = new Map<string, Traced>()
  readonly #running: Traced
  /** Where the time of a scenario is not over after the step. */
  readonly #goesOn: Traced

  constructor(parts: StepParts, batch: number | 'n') {
    this.#parts = parts
    this.#batch = batch
    const ended = this.#state('ended', [1], 0)
    const [steps, done] = [this.#state('steps', [1], 0), this.#state('done', [1], 0)]
    const running = ended.equal(0).multiply(done.less(steps))
    this.#running = parts.reward ? running.multiply(this.#input('advance')) : running
    this.#tracer.ones = this.#state('ones', [1], 1)
    const next = done.add(this.#running)
    this.#carry('done', next)
    this.#goesOn = next.less(steps)
  }

  write(): StepGraph {
    const { world, start } = this.#parts
    const own = (kind: string, values: Readonly<Record<string, Numbers>>): Record<string, Traced> =>
      Object.fromEntries(
        Object.entries(values).map(([name, numbers]) => [
          name,
          this.#state(`${kind}/${name}`, [columnsOf(numbers)], 0),
        ]),
      )
    const states = own('state', start.states)
    const parameters = own('parameter', start.parameters)
    const now = this.#timeline(Object.keys(start.timeline))
    const step = {
      states: namedValues('state', states),
      parameters: namedValues('parameter', parameters),
      now: namedValues('value of the timeline', now),
    }
    const seen = world.observe(step)
    const observation = Object.fromEntries(world.observations.map(name => [name, seen[name]!]))
    const action = this.#decide(observation)
    const run = (inputs: TracedValues): TracedValues =>
      Object.fromEntries(this.#tracer.inline(this.#sized(world.model!), new Map(Object.entries(inputs))))
    const change = world.advance(step, action, run)
    for (const [name, value] of Object.entries(change.states)) this.#move(`state/${name}`, value)
    const measures = namedValues('measure', change.measures)
    this.#measure(measures)
    this.#end(change)
    const recorded = this.#record({ ...observation, ...prefixed(action), ...change.measures })
    if (this.#parts.reward) this.#giveResult(this.#parts.reward, measures, step.parameters)
    return this.#build(Object.keys(now), recorded)
  }

  /** A number for each scenario that a caller feeds. */
  #input(name: string): Traced {
    this.#tracer.graph.input(name, 'f32', [this.#batch, 1])
    return this.#tracer.value(name)
  }

  /** A state, as it is before the step. */
  #state(name: string, sizes: readonly number[], first: Numbers): Traced {
    this.#states.set(name, { sizes, first })
    this.#tracer.graph.input(name, 'f32', [this.#batch, ...sizes] as Dimension[])
    return this.#tracer.value(name)
  }

  /** What a state becomes, whether its scenario runs or not. */
  #carry(name: string, value: Traced): void {
    this.#updates.set(name, value)
  }

  /** What a state becomes where its scenario runs and stays finite. */
  #move(name: string, value: Traced): void {
    this.#moves.set(name, value)
  }

  #timeline(columns: readonly string[]): Record<string, Traced> {
    const tracer = this.#tracer
    tracer.graph.input('clock', 'i64', [1])
    this.#states.set('clock', { sizes: [1], first: 0 })
    tracer.graph.input('length', 'i64', [1])
    this.#states.set('length', { sizes: [1], first: 1 })
    const isLater = this.#parts.reward
      ? tracer.add('Cast', [tracer.add('ReduceMax', [tracer.value('advance')], { keepdims: 0 })], { to: 7 })
      : tracer.integers(1)
    const later = tracer.add('Add', [tracer.value('clock'), isLater])
    this.#carry('clock', tracer.add('Mod', [later, tracer.value('length')]))
    if (columns.length === 0) return {}
    tracer.graph.input('timeline', 'f32', ['steps', this.#batch, columns.length])
    this.#states.set('timeline', { sizes: [columns.length], first: 0 })
    return this.#valuesAt(tracer.value('clock'), columns)
  }

  /** Values of the timeline at a step. */
  #valuesAt(clock: Traced, columns: readonly string[]): Record<string, Traced> {
    const tracer = this.#tracer
    const row = tracer.add('Gather', [tracer.value('timeline'), clock], { axis: 0 })
    const now = tracer.add('Squeeze', [row, tracer.integers(0)])
    return Object.fromEntries(columns.map((name, i) => [name, now.columns(i, i + 1)]))
  }

  #sized(graph: Graph): Graph {
    return this.#batch === 'n' ? graph : forBatch(graph, this.#batch)
  }

  /** The actions of all parts, within their limits. */
  #decide(observation: Record<string, Traced>): Record<string, Traced> {
    const { world, parts } = this.#parts
    const names = Object.keys(world.actions)
    const given = new Map<string, Traced>()
    for (const [i, part] of (parts ?? []).entries()) {
      const values = 'graph' in part ? this.#model(part, i, observation) : this.#policy(part, i, observation)
      expectActions(world, values)
      for (const [name, value] of expectTraced('action', values, this.#tracer)) given.set(name, value)
    }
    return Object.fromEntries(
      names.map(name => {
        const [low, high] = world.actions[name]!
        const idle = Math.min(Math.max(0, low), high)
        const value = given.get(name) ?? (parts ? this.#tracer.number(idle) : this.#input(`action/${name}`))
        return [name, value.clip(low, high)]
      }),
    )
  }

  #policy(part: PolicyWithMemory, i: number, observation: Record<string, Traced>): Actions {
    const memory: Record<string, Traced> = {}
    for (const [name, first] of Object.entries(part.memory ?? {}))
      memory[name] = this.#state(`memory${i}/${name}`, [columnsOf(first)], first)
    const result = part.act(namedValues('observation', observation), namedValues('memory', memory))
    for (const [name, value] of expectTraced('memory', result?.memory ?? {}, this.#tracer)) {
      void namedValues('memory', memory)[name]
      this.#move(`memory${i}/${name}`, value)
    }
    return result?.action
  }

  #model(
    part: { readonly graph: Graph; readonly label: string },
    i: number,
    observation: Record<string, Traced>,
  ): Actions {
    const memory = Object.fromEntries(
      [...memoryOf(part.graph, part.label)].map(([name, sizes]) => [
        name,
        this.#state(`memory${i}/${name}`, sizes, 0),
      ]),
    )
    const sized = { ...part, graph: this.#sized(part.graph) }
    const names = Object.keys(this.#parts.world.actions)
    const step = addModel(this.#tracer, sized, observation, memory, names)
    for (const [name, value] of Object.entries(step.memory)) this.#move(`memory${i}/${name}`, value)
    return step.action
  }

  /** What an environment gives after a step. */
  #giveResult(
    reward: NonNullable<StepParts['reward']>,
    measures: TracedValues,
    parameters: TracedValues,
  ): void {
    const { world, start } = this.#parts
    const after = (name: string): Traced => this.#updates.get(name) ?? this.#tracer.value(name)
    const states = Object.keys(start.states).map(name => [name, after(`state/${name}`)])
    const columns = Object.keys(start.timeline)
    const now = columns.length === 0 ? {} : this.#valuesAt(after('clock'), columns)
    const seen = world.observe({ states: Object.fromEntries(states), parameters, now })
    const given = expectTraced('reward', { reward: reward(measures) }, this.#tracer).get('reward')!
    const isOver = this.#goesOn.negate().add(1)
    const result = [
      ...world.observations.map(name => seen[name]!),
      this.#running.choose(given, 0),
      after('ended'),
      isOver,
    ]
    this.#output('result', joined(result))
  }

  /** Ends scenarios: by the index of the reason from 1 on, the last one where a number is not finite. */
  #end({ ends = {}, states }: WorldChange): void {
    const { endings } = this.#parts.world
    let reason = this.#tracer.number(0)
    for (const [i, name] of [...endings.entries()].reverse())
      if (ends[name]) reason = ends[name].choose(i + 1, reason)
    const finite = joined(Object.values(states)).multiply(0).sum().equal(0)
    const ended = this.#tracer.value('ended')
    this.#carry('ended', this.#running.choose(finite.choose(reason, endings.length + 1), ended))
    const moves = this.#running.multiply(finite)
    for (const [name, value] of this.#moves) this.#carry(name, moves.choose(value, this.#tracer.value(name)))
  }

  #measure(measures: TracedValues): void {
    for (const [name, { start, accumulate }] of Object.entries(this.#parts.metrics)) {
      const total = this.#state(`total/${name}`, [1], start)
      this.#move(`total/${name}`, accumulate(total, measures))
    }
  }

  /** Keeps values of each step in [scenarios, steps, columns]; NaN behind the end of a scenario. */
  #record(values: TracedValues): string[] {
    const names = Object.keys(values)
    const tracer = this.#tracer
    if (!this.#parts.records) return []
    tracer.graph.input('record', 'f32', [this.#batch, 'steps', names.length])
    this.#states.set('record', { sizes: [names.length], first: Number.NaN })
    tracer.graph.input('row', 'i64', [this.#batch])
    this.#states.set('row', { sizes: [], first: 0 })
    const row = tracer.value('row')
    this.#carry('row', tracer.add('Add', [row, tracer.integers(1)]))
    const all = this.#running.choose(joined(Object.values(values)), Number.NaN)
    const update = tracer.add('Unsqueeze', [all, tracer.integers(1)])
    this.#carry('record', tracer.add('TensorScatter', [tracer.value('record'), update, row]))
    return names
  }

  #output(name: string, value: Traced): void {
    this.#tracer.graph.output(value.name, name)
  }

  #build(timeline: readonly string[], recorded: readonly string[]): StepGraph {
    const next = new Map([...this.#states.keys()].map(name => [name, name]))
    for (const [name, value] of this.#updates) {
      this.#output(`next ${name}`, value)
      next.set(name, `next ${name}`)
    }
    const built = this.#tracer.graph.build()
    const outputs = built.outputs.filter(({ name }) => !name.startsWith('next '))
    return { graph: { ...built, outputs, updates: next }, states: this.#states, timeline, recorded }
  }
}

/** Actions by the names under which they are recorded. */
const prefixed = (action: TracedValues): Record<string, Traced> =>
  Object.fromEntries(Object.entries(action).map(([name, value]) => [`action.${name}`, value]))

const joined = ([first, ...others]: readonly Traced[]): Traced => first!.concat(...others)
