// staged-runner.ts: runs batches of a decoder on the nodes of its stages, each of which keeps keys and values of its layers.
import type { ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { Tensor } from '../../memory/tensor.js'
import type { ModelBackendChoice, ModelStats } from '../../model/engine.js'
import type { Batch } from '../../text/generation/batch.js'
import type { BatchRows, BatchRunner } from '../../text/generation/decoder-runner.js'
import { CacheLost } from '../../text/generation/scheduler.js'
import type { RowOutput } from '../../text/generation/token-request.js'
import type { NamedTensors } from '../stages/messages.js'
import type { Pipeline } from '../stages/pipeline.js'
import type { Place } from '../stages/stage-place.js'

/** What stages call the run of batches whose states are keys and values. */
const sequence = 'text'

/** How often keys and values may be lost with no batch in between. */
const maxLosses = 8

/** What was compiled is known where it was. */
const noStats: ModelStats = {
  ...{ plans: 0, compilations: 0, steps: 0, setupSteps: 0, arenaBytes: 0, lowerBound: 0 },
  ...{ constantBytes: 0, compileMs: 0, fusions: {} },
}

/**
 * Runs batches on several nodes. Blocks of the caches have the same numbers on all of them, which the scheduler of this node gives
 * out. When a stage has lost its cache, all are begun anew.
 */
export class StagedRunner implements BatchRunner {
  readonly backend: ModelBackendChoice
  readonly stats = noStats
  readonly #pipeline: Pipeline
  /** Outputs that stay on the nodes. */
  readonly #states: ReadonlySet<string>
  /** Batches that a stage has worked on, of those stages that have the caches. */
  #steps = new WeakMap<Place, number>()
  /** Batches so far, and those that are on their way. */
  #step = 0
  readonly #running = new Set<number>()
  #losses = 0
  /** Whether a batch has failed: those behind it do not run. */
  #hasFailed = false
  /** Batches that wait for a stage. */
  readonly #waiting: (() => void)[] = []

  /** @param states - outputs that become inputs of the next batch */
  constructor(pipeline: Pipeline, states: Iterable<string>, backend: ModelBackendChoice) {
    this.#pipeline = pipeline
    this.#states = new Set(states)
    this.backend = backend
  }

  /** Each stage works on one. */
  get batches(): number {
    return this.#pipeline.stages.length
  }

  async run({ feeds }: Batch, outputs: readonly RowOutput[]): Promise<BatchRows> {
    const step = this.#step++
    const values = new Map<string, Tensor<ElementType>>(Object.entries(feeds))
    const wanted = new Set<string>(outputs)
    const unwanted = (['logits', 'hidden'] as const).filter(name => !wanted.has(name))
    const leftOut = new Set([...this.#states, ...unwanted])
    this.#running.add(step)
    try {
      await this.#pipeline.pass(values, leftOut, (stage, own, made) => this.#runStage(stage, step, own, made))
      this.#losses = 0
    } catch (error) {
      this.#hasFailed = true
      throw error
    } finally {
      this.#running.delete(step)
      this.#wake()
    }
    return Object.fromEntries(outputs.map(name => [name, values.get(name)!.data as Float32Array]))
  }

  async reset(): Promise<void> {
    this.#steps = new WeakMap()
    this.#step = 0
    this.#hasFailed = false
    await this.#end()
  }

  /** Plans of stages stay. */
  async trim(): Promise<void> {}

  async dispose(): Promise<void> {
    await this.#pipeline.dispose()
  }

  async #runStage(
    stage: Place,
    step: number,
    own: NamedTensors,
    outputs: readonly string[],
  ): Promise<NamedTensors> {
    if (![...stage.ends.states.values()].some(name => this.#states.has(name)))
      return (await stage.ask({ op: 'run', outputs }, own)).tensors
    await this.#turn(stage, step)
    try {
      const { tensors } = await stage.ask({ op: 'run', outputs, sequence, step }, own)
      this.#steps.set(stage, step + 1)
      return tensors
    } catch (error) {
      // Of a link that broke the same question may be asked again; a cache that is no longer there is built again.
      if (error instanceof SparkError && error.code !== 'ERR_IO') this.#steps.delete(stage)
      throw error
    } finally {
      this.#wake()
    }
  }

  /**
   * Waits until the batches before are through a stage, and begins its cache with the first one.
   * @throws CacheLost where the stage has lost it, or a batch before has failed
   */
  async #turn(stage: Place, step: number): Promise<void> {
    while (this.#steps.get(stage) !== step) {
      if (this.#hasFailed) throw new CacheLost('a batch before has failed')
      if (Math.min(...this.#running) === step) return this.#begin(stage, step)
      await new Promise<void>(resolve => this.#waiting.push(resolve))
    }
  }

  async #begin(stage: Place, step: number): Promise<void> {
    if (step > 0) {
      this.#losses++
      if (this.#losses <= maxLosses) throw new CacheLost(`the cache of node ${stage.plan.nodeId} was lost`)
      throw new SparkError('ERR_BUSY', `node ${stage.plan.nodeId} loses its cache each time it is filled`)
    }
    await stage.ask({ op: 'begin', sequence, step: 0 })
    this.#steps.set(stage, 0)
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
  }

  async #end(): Promise<void> {
    await this.#pipeline.endSequence(sequence)
  }
}
