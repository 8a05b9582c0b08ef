// runner.ts: scenarios by the thousand, in lock step.
import {
  argumentError,
  expectBoolean,
  expectInteger,
  expectKnownOptions,
  expectOneOf,
  expectSignal,
} from '../core/checks.js'
import { backendNames } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import type { Algorithm } from './algorithm.js'
import type { Comparison } from './comparison.js'
import type { DrivingScenario } from './driving-scenario.js'
import type { BatchResult, RunBatchOptions, ScenarioRunnerOptions } from './results.js'
import type { Simulation } from './simulation.js'

/**
 * Runs scenarios by the thousand: all advance in lock step, their state stays on the device, and all steps are one native call.
 * Results of a scenario are the same, bit for bit, whatever runs beside it.
 *
 * @example
 * const runner = new ScenarioRunner({ algorithm: [idm(), laneKeeping()] })
 * const { results, failed } = await runner.runBatch(generateScenarios({ count: 1000 }))
 * console.log(results[0].name, results[0].ended, results[0].metrics.cost)
 * runner.dispose()
 */
export class ScenarioRunner<S = DrivingScenario> implements Disposable {
  readonly #options: ScenarioRunnerOptions<S>
  #opened: Promise<Simulation<S>> | undefined
  #last: Promise<unknown> = Promise.resolve()
  #isDisposed = false

  /** @throws SparkError ERR_ARGUMENT for an option of the wrong type */
  constructor(options: ScenarioRunnerOptions<S>) {
    expectKnownOptions('options', options, ['algorithm', 'device', 'metrics', 'world', 'batchSize'])
    const { device = 'auto', algorithm, batchSize = 4096 } = options
    expectOneOf('options.device', device, backendNames)
    expectInteger('options.batchSize', batchSize, 1, 2 ** 24)
    if (algorithm === undefined) throw argumentError('options.algorithm', 'what decides', algorithm)
    this.#options = options
  }

  /**
   * Runs scenarios. Those that are wrong are named in `failed`; the others run.
   * @throws SparkError ERR_ARGUMENT for an algorithm that does not fit the world, ERR_DISPOSED, what opening the device and
   * reading models throws; the reason of the signal
   */
  async runBatch(scenarios: readonly S[], options: RunBatchOptions = {}): Promise<BatchResult> {
    expectKnownOptions('options', options, ['trajectories', 'signal', 'onProgress'])
    const { trajectories = false, signal } = options
    expectBoolean('options.trajectories', trajectories)
    expectSignal('options.signal', signal)
    const work = this.#last.then(async () => {
      if (this.#isDisposed) throw new SparkError('ERR_DISPOSED', 'the runner has been disposed')
      signal?.throwIfAborted()
      this.#opened ??= this.#open()
      return (await this.#opened).run(scenarios, { ...options, trajectories })
    })
    this.#last = work.catch(() => undefined)
    return work
  }

  /**
   * Runs the same scenarios with two algorithms and compares each metric scenario by scenario: the mean of the differences b − a with
   * its confidence interval of 95 %.
   * @throws SparkError as {@link ScenarioRunner.runBatch}
   */
  async compareAlgorithms(
    a: Algorithm,
    b: Algorithm,
    scenarios: readonly S[],
    options: RunBatchOptions = {},
  ): Promise<Comparison> {
    const { compareResults } = await import('./comparison.js')
    const results: BatchResult[] = []
    for (const algorithm of [a, b]) {
      const runner = new ScenarioRunner<S>({ ...this.#options, algorithm })
      try {
        results.push(await runner.runBatch(scenarios, options))
      } finally {
        runner.dispose()
      }
    }
    return compareResults(results[0]!, results[1]!)
  }

  /** Frees what the device holds. A second dispose is a no-op. */
  dispose(): void {
    this.#isDisposed = true
    const release = async (): Promise<void> => (await this.#opened)?.dispose()
    void this.#last.then(release).catch(() => undefined)
  }

  /** As {@link ScenarioRunner.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  async #open(): Promise<Simulation<S>> {
    const { Simulation } = await import('./simulation.js')
    return Simulation.open(this.#options)
  }
}
