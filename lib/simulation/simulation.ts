// simulation.ts: what a ScenarioRunner loads when it runs first: the graph of a step, and batches that it is compiled for.
import { argumentError, expectOneOf } from '../core/checks.js'
import { mapPaced, Pacer } from '../core/paced.js'
import type { Kernels } from '../kernels/kernels.js'
import { openKernels } from '../kernels/open.js'
import { type AlgorithmPart, algorithmParts } from './algorithm.js'
import { ScenarioBatch } from './batch.js'
import type { BatchResult, RunBatchOptions, ScenarioResult, ScenarioRunnerOptions } from './results.js'
import { type ReadScenario, readScenarios } from './scenarios.js'
import { dependsOnBatch, type StepGraph, stepGraph } from './step-graph.js'
import type { Metric, ScenarioStart, World } from './world.js'

/** Bytes of what changes by the clock in the scenarios that advance together. */
const mostTimelineBytes = 2 ** 28

/** Runs scenarios of one world with one algorithm on one device. One list at a time. */
export class Simulation<S> implements Disposable {
  readonly #options: ScenarioRunnerOptions<S>
  readonly #kernels: Kernels
  readonly #parts: readonly AlgorithmPart[]
  readonly #world: World<S>
  readonly #steps = new Map<string, StepGraph>()
  #batch: { readonly key: string; readonly batch: ScenarioBatch } | undefined

  private constructor(
    options: ScenarioRunnerOptions<S>,
    kernels: Kernels,
    parts: readonly AlgorithmPart[],
    world: World<S>,
  ) {
    this.#options = options
    this.#kernels = kernels
    this.#parts = parts
    this.#world = world
  }

  /** Opens the device and reads models. */
  static async open<S>(options: ScenarioRunnerOptions<S>): Promise<Simulation<S>> {
    const { algorithm, device = 'auto', world } = options
    const kernels = await openKernels({ backend: device })
    const parts = await algorithmParts(algorithm)
    if ((world?.agents ?? 1) > 1)
      throw argumentError(
        'options.world',
        'a world of one agent: several are for createEnvironment',
        world!.name,
      )
    if (world) return new Simulation(options, kernels, parts, world)
    const { drivingWorld } = await import('./driving.js')
    return new Simulation(options, kernels, parts, drivingWorld() as unknown as World<S>)
  }

  /** {@link ScenarioRunner.runBatch}. */
  async run(scenarios: readonly S[], options: RunBatchOptions): Promise<BatchResult> {
    const { starts, failed } = await readScenarios(this.#world, scenarios, new Pacer(options.signal))
    // Scenarios of about one length together: a batch takes as many steps as its longest one.
    const order = [...starts].sort(([i, a], [j, b]) => b.steps - a.steps || i - j)
    const results: ScenarioResult[] = []
    let ms = 0
    for (let first = 0; first < order.length; ) {
      const part = new Map(order.slice(first, first + this.#fitting(order[first]![1])))
      first += part.size
      ms += await this.#runPart(part, options, results)
      options.onProgress?.({ done: results.length, total: order.length })
    }
    results.sort((a, b) => a.index - b.index)
    return { results, failed, device: this.#kernels.backend, ms }
  }

  /** Frees what the device holds. */
  dispose(): void {
    this.#batch?.batch.dispose()
    this.#batch = undefined
  }

  /** As {@link Simulation.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  /** How many scenarios of the length of one advance together: what changes by the clock takes bounded memory. */
  #fitting({ steps, start }: ReadScenario): number {
    const { batchSize = 4096 } = this.#options
    const bytes = 4 * steps * (Object.keys(start().timeline).length + 1)
    return Math.max(1, Math.min(batchSize, Math.floor(mostTimelineBytes / bytes)))
  }

  /** Runs scenarios together; milliseconds that it took. */
  async #runPart(
    scenarios: ReadonlyMap<number, ReadScenario>,
    { trajectories = false, signal }: RunBatchOptions,
    results: ScenarioResult[],
  ): Promise<number> {
    const pacer = new Pacer(signal)
    const rows = await pacer.do(mapPaced(scenarios.values(), ({ start }) => start()))
    const steps = Math.max(...rows.map(start => start.steps))
    const { batch, step, world } = await this.#batchFor(rows, steps, trajectories)
    const begun = performance.now()
    await batch.begin(rows, pacer)
    await batch.store()
    await batch.run(steps, signal)
    await batch.fetch()
    const metrics = metricsOf(world, this.#options.metrics)
    for (const [row, index] of [...scenarios.keys()].entries())
      results.push(readResult({ batch, step, world, metrics }, row, index, rows[row]!.name))
    return performance.now() - begun
  }

  async #batchFor(rows: readonly ScenarioStart[], steps: number, trajectories: boolean) {
    const world = this.#world as World
    const metrics = metricsOf(world, this.#options.metrics)
    const shape = { world, parts: this.#parts, metrics, start: rows[0]! }
    const batchSize = dependsOnBatch(shape) ? rows.length : 'n'
    const stepKey = `${batchSize} ${trajectories}`
    let step = this.#steps.get(stepKey)
    if (!step) {
      step = stepGraph({ ...shape, records: trajectories }, batchSize)
      this.#steps.set(stepKey, step)
    }
    const key = `${rows.length} ${steps} ${trajectories}`
    if (this.#batch?.key !== key) {
      this.#batch?.batch.dispose()
      this.#batch = undefined
      this.#batch = { key, batch: await ScenarioBatch.create(step, this.#kernels, rows.length, steps) }
    }
    return { batch: this.#batch.batch, step, world }
  }
}

/** The metrics that somebody asks for. */
function metricsOf(
  world: Pick<World, 'metrics' | 'name'>,
  asked: ScenarioRunnerOptions['metrics'],
): Readonly<Record<string, Metric>> {
  if (asked === undefined) return world.metrics
  if (!Array.isArray(asked)) return asked as Readonly<Record<string, Metric>>
  const known = Object.keys(world.metrics)
  for (const [i, name] of asked.entries()) expectOneOf(`options.metrics[${i}]`, name, known)
  return Object.fromEntries(asked.map(name => [name, world.metrics[name]!]))
}

/** What a result is read from. */
interface Source {
  readonly batch: ScenarioBatch
  readonly step: StepGraph
  readonly world: World
  readonly metrics: Readonly<Record<string, Metric>>
}

function readResult({ batch, step, world, metrics }: Source, row: number, index: number, name: string) {
  const steps = batch.read('done')[row]!
  const reasons = ['finished', ...world.endings, 'not finite']
  const numbers = Object.entries(metrics).map(([name, { finish }]): [string, number] => {
    const total = batch.read(`total/${name}`)[row]!
    return [name, finish ? finish(total, steps) : total]
  })
  const result = {
    index,
    name,
    ended: reasons[batch.read('ended')[row]!]!,
    steps,
    seconds: Number((steps * world.timeStep).toFixed(6)),
    metrics: Object.fromEntries(numbers),
  }
  if (step.recorded.length === 0) return result
  return { ...result, trajectory: trajectoryOf(batch, step.recorded, row, steps, world.timeStep) }
}

function trajectoryOf(
  batch: ScenarioBatch,
  names: readonly string[],
  row: number,
  steps: number,
  timeStep: number,
): Record<string, Float32Array> {
  const first = row * batch.steps * names.length
  const column = (i: number): Float32Array =>
    Float32Array.from({ length: steps }, (_, step) => batch.record[first + step * names.length + i]!)
  return {
    ...Object.fromEntries(names.map((name, i) => [name, column(i)])),
    time: Float32Array.from({ length: steps }, (_, step) => step * timeStep),
  }
}
