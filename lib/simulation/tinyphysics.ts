// tinyphysics.ts: the learned simulator of comma's controls challenge as a world.
// What it does and its cost follow tinyphysics.py of github.com/commaai/controls_challenge.
import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectNumber,
  expectOneOf,
} from '../core/checks.js'
import type { Graph } from '../graph/graph.js'
import { Tensor } from '../memory/tensor.js'
import { uniformNoise } from './noise.js'
import type { Traced } from './traced.js'
import type { Metric, RunModel, ScenarioStart, World, WorldChange, WorldStep } from './world.js'

/** A drive, sampled at 10 Hz; lists of one length. */
export interface TinyphysicsDrive {
  /** Its name. Default: drive. */
  readonly name?: string
  /** Seed of sampled predictions. Default: 0. */
  readonly seed?: number
  /** m/s² that the car should have to the left. */
  readonly targetLateralAcceleration: readonly number[]
  /** m/s² of gravity to the left in a banked road: 9.81 · sin(roll). */
  readonly rollLateralAcceleration: readonly number[]
  /** m/s */
  readonly vEgo: readonly number[]
  /** m/s² */
  readonly aEgo: readonly number[]
  /** What was steered, positive to the left: it holds until step 100. */
  readonly steer: readonly number[]
}

/** Options of {@link loadTinyphysics}. */
export interface TinyphysicsOptions {
  /** Whether the next lateral acceleration is drawn from what the model predicts, or its expected value. Default: sampled. */
  prediction?: 'sampled' | 'expected'
  /** What logits are divided by. Default: 0.8. */
  temperature?: number
  /** Steps ahead of which an algorithm sees the target, as `futureTarget`. Default: 0. */
  futureSteps?: number
}

const context = 20
const controlStart = 100
const costEnd = 500
const timeStep = 0.1
const largestChange = 0.5
const [lowest, highest] = [-5, 5]
const vocabulary = 1024

/** Lateral accelerations of the tokens, m/s². */
const bins = Float32Array.from(
  { length: vocabulary },
  (_, i) => lowest + ((highest - lowest) * i) / (vocabulary - 1),
)

const list = { type: 'array', minItems: controlStart + 2, maxItems: 36_000, items: { type: 'number' } }
const lists = ['targetLateralAcceleration', 'rollLateralAcceleration', 'vEgo', 'aEgo', 'steer'] as const

/** JSON schema of {@link TinyphysicsDrive}. */
const schema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'Drive of the tinyphysics world',
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 1 },
    seed: { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER },
    ...Object.fromEntries(lists.map(name => [name, list])),
  },
  required: lists,
  additionalProperties: false,
} as const

/** How many of the steps of a drive, which begin behind the context, count for the cost. */
const counted = (steps: number): number => Math.max(0, Math.min(context + steps, costEnd) - controlStart)

const lateralCost = (sum: number, steps: number): number => (100 * sum) / Math.max(1, counted(steps))
const jerkCost = (sum: number, steps: number): number => (100 * sum) / Math.max(1, counted(steps) - 1)

const total = (measure: string, finish: Metric['finish']): Metric => ({
  unit: '',
  start: 0,
  accumulate: (sum, measures) => sum.add(measures[measure]!),
  finish: finish!,
})

/**
 * 100 · mean((target − lateral acceleration)²) over steps 100 to 499, 100 · mean((change / 0.1 s)²) between them, and 50 times the
 * first plus the second.
 */
const metrics: Readonly<Record<string, Metric>> = {
  lateralCost: total('lateralError²', lateralCost),
  jerkCost: total('jerk²', jerkCost),
  cost: total('cost', lateralCost),
}

/**
 * The learned simulator of comma's controls challenge: a model predicts a car's lateral acceleration from the last 20 steering
 * commands, states and lateral accelerations, at 10 Hz. Observations: `targetLateralAcceleration`, `lateralAcceleration` (of the step
 * before), `rollLateralAcceleration` m/s², `vEgo` m/s, `aEgo` m/s². Action: `steer`, −2 to 2, which counts from step 100 on. Metrics:
 * `lateralCost`, `jerkCost` and `cost` = 50 · `lateralCost` + `jerkCost`, as compute_cost of tinyphysics.py.
 * @param file - tinyphysics.onnx
 * @throws SparkError ERR_ARGUMENT, and as `Model.load`; ERR_FORMAT for a model of other inputs
 */
export async function loadTinyphysics(
  file: string,
  options: TinyphysicsOptions = {},
): Promise<World<TinyphysicsDrive>> {
  expectKnownOptions('options', options, ['prediction', 'temperature', 'futureSteps'])
  const { prediction = 'sampled', temperature = 0.8, futureSteps = 0 } = options
  expectOneOf('options.prediction', prediction, ['sampled', 'expected'])
  expectNumber('options.temperature', temperature, 1e-3, 1e3)
  expectInteger('options.futureSteps', futureSteps, 0, 50)
  const { inputsOf, readModelGraph } = await import('./model-graph.js')
  const model = await readModelGraph(file)
  const names = inputsOf(model).map(({ name }) => name)
  if (names.length !== 2 || !names.includes('states') || !names.includes('tokens'))
    throw argumentError('file', 'a model with the inputs states and tokens', names, 'ERR_FORMAT')
  const future = Array.from({ length: futureSteps }, (_, i) => `future${i + 1}`)
  return {
    name: 'tinyphysics',
    timeStep,
    schema,
    actions: { steer: [-2, 2] },
    observations: [
      'targetLateralAcceleration',
      'lateralAcceleration',
      'rollLateralAcceleration',
      'vEgo',
      'aEgo',
      ...(futureSteps > 0 ? ['futureTarget'] : []),
    ],
    endings: [],
    metrics,
    model,
    begin: drive => begin(drive, future),
    observe: ({ states, now }) => ({
      targetLateralAcceleration: now.target!,
      lateralAcceleration: states.current!,
      rollLateralAcceleration: now.roll!,
      vEgo: now.vEgo!,
      aEgo: now.aEgo!,
      ...(futureSteps > 0 && { futureTarget: joined(future.map(name => now[name]!)) }),
    }),
    advance: (step, action, run) =>
      advance(step, action.steer!, token(model, run!, prediction, temperature, step)),
  }
}

function begin(drive: TinyphysicsDrive, future: readonly string[]): ScenarioStart {
  const { name = 'drive', seed = 0, targetLateralAcceleration: target, steer } = drive
  for (const key of lists)
    if (drive[key].length !== target.length)
      throw argumentError(key, `a list of ${target.length} numbers, as targetLateralAcceleration`, drive[key])
  const steps = target.length - context
  const first = (values: readonly number[]): number[] => values.slice(0, context)
  const later = (values: readonly number[], by = 0): Float32Array =>
    Float32Array.from({ length: steps }, (_, i) => values[Math.min(context + i + by, values.length - 1)]!)
  const flag = (from: number): Float32Array =>
    Float32Array.from({ length: steps }, (_, i) => Number(context + i >= from && context + i < costEnd))
  return {
    name,
    steps,
    states: {
      steers: first(steer),
      rolls: first(drive.rollLateralAcceleration),
      speeds: first(drive.vEgo),
      accelerations: first(drive.aEgo),
      tokens: first(target).map(tokenOf),
      current: target[context - 1]!,
    },
    parameters: { jerkShare: counted(steps) / Math.max(1, counted(steps) - 1) },
    timeline: {
      target: later(target),
      roll: later(drive.rollLateralAcceleration),
      vEgo: later(drive.vEgo),
      aEgo: later(drive.aEgo),
      steer: later(steer),
      isControlled: Float32Array.from({ length: steps }, (_, i) => Number(context + i >= controlStart)),
      counts: flag(controlStart),
      countsChange: flag(controlStart + 1),
      share: uniformNoise(seed, 0, steps),
      ...Object.fromEntries(future.map((name, i) => [name, later(target, i + 1)])),
    },
  }
}

/** numpy.digitize(value, bins, right=True) of a value within the bins. */
function tokenOf(value: number): number {
  const inside = Math.fround(Math.min(Math.max(value, lowest), highest))
  let index = Math.max(0, Math.floor(((inside - lowest) * (vocabulary - 1)) / (highest - lowest)) - 1)
  while (index < vocabulary - 1 && bins[index]! < inside) index++
  return index
}

const joined = ([first, ...others]: readonly Traced[]): Traced => first!.concat(...others)

/** The last 20 values, with a new one. */
const appended = (values: Traced, value: Traced): Traced => values.columns(1, context).concat(value)

/** Predicts the next lateral acceleration from histories that contain the action of this step. */
type Predict = (
  histories: {
    readonly [Name in 'steers' | 'rolls' | 'speeds' | 'accelerations' | 'tokens']: Traced
  },
) => Traced

function token(
  model: Graph,
  run: RunModel,
  prediction: 'sampled' | 'expected',
  temperature: number,
  { now }: WorldStep,
): Predict {
  return ({ steers, rolls, speeds, accelerations, tokens }) => {
    const { tracer } = steers
    const columns = [steers, rolls, speeds, accelerations].map(values =>
      tracer.add('Unsqueeze', [values, tracer.integers(2)]),
    )
    const outputs = run({
      states: tracer.add('Concat', columns, { axis: 2 }),
      tokens: tracer.add('Cast', [tokens], { to: 7 }),
    })
    const all = outputs[model.outputs[0]!.name]!
    const last = tracer.add('Gather', [all, tracer.integers(context - 1)], { axis: 1 })
    const logits = tracer.add('Squeeze', [last, tracer.integers(1)]).divide(temperature)
    const probabilities = tracer.add('Softmax', [logits], { axis: -1 })
    const values = Tensor.from(bins, { shape: [1, vocabulary] })
    if (prediction === 'expected') return tracer.add('Mul', [probabilities, values]).sum()
    // The inverse of the distribution: how many sums of probabilities lie at or below the share.
    const sums = tracer.add('CumSum', [probabilities, tracer.integers(1)])
    const index = sums
      .lessOrEqual(now.share!)
      .sum()
      .minimum(vocabulary - 1)
    return accelerationOf(index)
  }
}

/** The lateral acceleration of a token. */
const accelerationOf = (index: Traced): Traced =>
  index.tracer.add('Gather', [Tensor.from(bins), index.tracer.add('Cast', [index], { to: 7 })])

/** {@link tokenOf}, as part of the graph: the token near the value, moved by what the bins beside it say. */
function tokenIn(value: Traced): Traced {
  const inside = value.clip(lowest, highest)
  const near = inside.subtract(lowest).multiply((vocabulary - 1) / (highest - lowest))
  const below = near.tracer
    .add('Floor', [near])
    .subtract(1)
    .clip(0, vocabulary - 3)
  const steps = [0, 1, 2].map(step => accelerationOf(below.add(step)).less(inside))
  return steps.reduce((index, isAbove) => index.add(isAbove), below).minimum(vocabulary - 1)
}

function advance({ states, parameters, now }: WorldStep, action: Traced, predict: Predict): WorldChange {
  const { current } = states
  const steer = now.isControlled!.choose(action, now.steer!).clip(-2, 2)
  const histories = {
    steers: appended(states.steers!, steer),
    rolls: appended(states.rolls!, now.roll!),
    speeds: appended(states.speeds!, now.vEgo!),
    accelerations: appended(states.accelerations!, now.aEgo!),
  }
  const predicted = predict({ ...histories, tokens: states.tokens! })
    .maximum(current!.subtract(largestChange))
    .minimum(current!.add(largestChange))
  const next = now.isControlled!.choose(predicted, now.target!)
  const error = now.target!.subtract(next).square().multiply(now.counts!)
  const jerk = next.subtract(current!).divide(timeStep).square().multiply(now.countsChange!)
  return {
    states: { ...histories, tokens: appended(states.tokens!, tokenIn(next)), current: next },
    measures: {
      steer,
      target: now.target!,
      predicted: next,
      'lateralError²': error,
      'jerk²': jerk,
      // Both are means, of numbers of steps that differ by one.
      cost: error.multiply(50).add(jerk.multiply(parameters.jerkShare!)),
    },
  }
}
