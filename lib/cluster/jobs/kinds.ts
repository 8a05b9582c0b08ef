// kinds.ts: the kinds of jobs that the library brings: runs of a model, scenarios, benchmarks, parts of a data set. A node says by name
// what it has; jobs name it, and bring numbers only.
import { benchmark } from '../../benchmark/benchmark.js'
import type { BenchmarkOptions } from '../../benchmark/options.js'
import { argumentError, expectInteger, expectKnownOptions } from '../../core/checks.js'
import type { ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { Tensor } from '../../memory/tensor.js'
import type { Feeds } from '../../model/feeds.js'
import type { Model } from '../../model/model.js'
import type { ScenarioResult } from '../../simulation/results.js'
import type { ScenarioRunner } from '../../simulation/runner.js'
import type { JobDescription, JobHandler, JobHandlers } from './jobs.js'
import type { JobValue } from './pack.js'
import type { SharedModels } from './shared-models.js'

/** A pass over samples `begin` to `end` of a data set, such as an evaluation; its result depends on them only. */
export type DatasetPass = (
  range: { readonly begin: number; readonly end: number },
  signal: AbortSignal,
) => Promise<JobValue>

/** What a node has, by name; a function is called when the first job needs it. */
export interface NodeSkills {
  /** Models, for `model.run` and `bench`. */
  readonly models?: Readonly<Record<string, () => Promise<Model>>>
  /** Models that jobs bring, for `model.run` and `bench`. */
  readonly shared?: SharedModels
  /** Runners of scenarios, for `simulate`. */
  // biome-ignore lint/suspicious/noExplicitAny: scenarios are data of the world of the runner
  readonly simulations?: Readonly<Record<string, () => ScenarioRunner<any> | Promise<ScenarioRunner<any>>>>
  /** Passes over data sets, for `dataset`. */
  readonly passes?: Readonly<Record<string, DatasetPass>>
}

/**
 * Handlers of what a node has.
 * @example
 * const handlers = jobHandlers({ models: { vision: () => Model.load('vision.onnx') } })
 * const worker = new WorkerLoop(control, { node: 'spark-1', handlers })
 */
export function jobHandlers({ models, shared, simulations, passes }: NodeSkills): JobHandlers {
  const modelOf = opened('model', models ?? {})
  const use: UseModel = async (model, signal, act) =>
    shared && typeof model === 'object' ? shared.use(model, signal, act) : act(await modelOf(model))
  return {
    ...((models || shared) && { 'model.run': runModel(use), bench: runBenchmark(use) }),
    ...(simulations && { simulate: simulate(opened('simulation', simulations)) }),
    ...(passes && { dataset: pass(passes) }),
  }
}

/** Does something with the model that a job names or brings. */
type UseModel = (
  model: JobValue,
  signal: AbortSignal,
  act: (model: Model) => Promise<JobValue>,
) => Promise<JobValue>

/** Opens things by name, each once. */
function opened<T>(
  what: string,
  things: Readonly<Record<string, () => T | Promise<T>>>,
): (name: JobValue) => Promise<T> {
  const open = new Map<string, Promise<T>>()
  return async name => {
    const made = typeof name === 'string' ? open.get(name) : undefined
    if (made) return made
    const make = named(what, things, name)
    const opening = Promise.resolve(make())
    open.set(name as string, opening)
    opening.catch(() => open.delete(name as string))
    return opening
  }
}

function named<T>(what: string, things: Readonly<Record<string, T>>, name: JobValue): T {
  if (typeof name === 'string' && Object.hasOwn(things, name)) return things[name]!
  throw new SparkError('ERR_ARGUMENT', `this node has no ${what} ${JSON.stringify(name)?.slice(0, 100)}`)
}

function paramsOf(params: JobValue): Readonly<Record<string, JobValue>> {
  const isObject = typeof params === 'object' && params !== null && !Array.isArray(params)
  if (!isObject || ArrayBuffer.isView(params)) throw argumentError('params', 'an object', params)
  return params as Readonly<Record<string, JobValue>>
}

/** `{ model, feeds }`: outputs by name, each with shape, type and elements. */
function runModel(use: UseModel): JobHandler {
  return (params, { signal }) => {
    const { model, feeds } = paramsOf(params)
    return use(model, signal, async opened => {
      const outputs = await opened.run(feedsOf(feeds), { signal })
      const entries = Object.entries(outputs).map(([name, { shape, dtype, data }]) => {
        return [name, { shape: [...shape], dtype, data: data as JobValue }] as const
      })
      return Object.fromEntries(entries)
    })
  }
}

/** Feeds of a job: as they are given to a model, or with their shapes, as {@link runModel} gives outputs. */
function feedsOf(feeds: JobValue): Feeds {
  const entries = Object.entries(paramsOf(feeds)).map(([name, feed]) => [name, tensorOf(feed) ?? feed])
  return Object.fromEntries(entries) as Feeds
}

/** The tensor of `{ shape, dtype, data }`; undefined for something else. @throws SparkError ERR_ARGUMENT, ERR_SHAPE */
export function tensorOf(value: JobValue): Tensor<ElementType> | undefined {
  const { shape, dtype, data } = (value ?? {}) as { shape?: number[]; dtype?: ElementType; data?: never }
  if (!Array.isArray(shape) || data === undefined) return undefined
  return Tensor.from(data, { shape, ...(dtype && { dtype }) })
}

/** `{ model, runs, warmup, batch, seed }`: times of this node. */
function runBenchmark(use: UseModel): JobHandler {
  return async (params, { signal }) => {
    const { model, ...given } = paramsOf(params)
    // Others name files, which no other node may.
    expectKnownOptions('params', given, ['runs', 'warmup', 'batch', 'seed'])
    return use(model, signal, async opened => {
      const result = await benchmark(opened, { ...(given as BenchmarkOptions), signal })
      return JSON.parse(JSON.stringify(result)) as JobValue
    })
  }
}

/** `{ simulation, scenarios }`: what came of each, without what depends on the machine. */
function simulate(runnerOf: (name: JobValue) => Promise<ScenarioRunner<unknown>>): JobHandler {
  return async (params, { signal }) => {
    const { simulation, scenarios, trajectories = false } = paramsOf(params)
    if (!Array.isArray(scenarios)) throw argumentError('params.scenarios', 'an array', scenarios)
    const runner = await runnerOf(simulation)
    const { results, failed } = await runner.runBatch(scenarios, {
      signal,
      trajectories: trajectories === true,
    })
    const reasons = failed.map(({ index, name, error }) => ({ index, name, error: error.message }))
    return { results: results as unknown as JobValue, failed: reasons }
  }
}

/** `{ pass, begin, end }` */
function pass(passes: Readonly<Record<string, DatasetPass>>): JobHandler {
  return async (params, { signal }) => {
    const { pass: name, begin, end } = paramsOf(params)
    expectInteger('params.begin', begin, 0)
    expectInteger('params.end', end, begin)
    return named('pass', passes, name)({ begin, end }, signal)
  }
}

/** Ranges of `size` of `count` items. @throws SparkError ERR_ARGUMENT */
function rangesOf(count: number, size: number): { begin: number; end: number }[] {
  expectInteger('count', count, 0)
  expectInteger('size', size, 1)
  return Array.from({ length: Math.ceil(count / size) }, (_, i) => ({
    begin: i * size,
    end: Math.min(count, (i + 1) * size),
  }))
}

/**
 * Jobs of a pass over a data set.
 * @param pass - its name on the nodes
 * @param count - samples of the data set
 * @param size - samples of a job
 */
export const datasetJobs = (pass: string, count: number, size: number): JobDescription[] =>
  rangesOf(count, size).map(range => ({ kind: 'dataset', params: { pass, ...range } }))

/**
 * Jobs that run scenarios.
 * @param simulation - its name on the nodes
 * @param size - scenarios of a job
 */
export const scenarioJobs = (
  simulation: string,
  scenarios: readonly object[],
  size: number,
): JobDescription[] =>
  rangesOf(scenarios.length, size).map(({ begin, end }) => ({
    kind: 'simulate',
    params: { simulation, scenarios: scenarios.slice(begin, end) as unknown as JobValue },
  }))

/** What came of scenarios that jobs ran. */
export interface JoinedScenarios {
  /** Of those that ran, in their order. */
  readonly results: readonly ScenarioResult[]
  /** Those that were wrong, and why. */
  readonly failed: readonly WrongScenario[]
}

/** A scenario that was wrong. */
export interface WrongScenario {
  /** In the list of all. */
  readonly index: number
  /** Its name. */
  readonly name: string
  /** Why. */
  readonly error: string
}

/** Results of {@link scenarioJobs} as those of one list: in its order, with its indices. */
export function joinScenarios(results: readonly JobValue[], size: number): JoinedScenarios {
  const shifted = <T extends { readonly index: number }>(items: readonly T[], part: number): T[] =>
    items.map(item => ({ ...item, index: item.index + part * size }))
  const parts = results as unknown as readonly JoinedScenarios[]
  return {
    results: parts.flatMap((part, i) => shifted(part.results, i)),
    failed: parts.flatMap((part, i) => shifted(part.failed, i)),
  }
}
