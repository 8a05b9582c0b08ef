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
  /** Stages that have the caches. */
  #begun = new WeakSet<Place>()
  #step = 0
  #losses = 0

  /** @param states - outputs that become inputs of the next batch */
  constructor(pipeline: Pipeline, states: Iterable<string>, backend: ModelBackendChoice) {
    this.#pipeline = pipeline
    this.#states = new Set(states)
    this.backend = backend
  }

  async run({ feeds }: Batch, outputs: readonly RowOutput[]): Promise<BatchRows> {
    const values = new Map<string, Tensor<ElementType>>(Object.entries(feeds))
    const wanted = new Set<string>(outputs)
    const unwanted = (['logits', 'hidden'] as const).filter(name => !wanted.has(name))
    const leftOut = new Set([...this.#states, ...unwanted])
    await this.#pipeline.pass(values, leftOut, (stage, own, made) => this.#runStage(stage, own, made))
    this.#step++
    this.#losses = 0
    return Object.fromEntries(outputs.map(name => [name, values.get(name)!.data as Float32Array]))
  }

  async reset(): Promise<void> {
    this.#begun = new WeakSet()
    this.#step = 0
    await this.#end()
  }

  /** Plans of stages stay. */
  async trim(): Promise<void> {}

  async dispose(): Promise<void> {
    await this.#pipeline.dispose()
  }

  async #runStage(stage: Place, own: NamedTensors, outputs: readonly string[]): Promise<NamedTensors> {
    if (![...stage.ends.states.values()].some(name => this.#states.has(name)))
      return (await stage.ask({ op: 'run', outputs }, own)).tensors
    if (!this.#begun.has(stage)) await this.#begin(stage)
    try {
      return (await stage.ask({ op: 'run', outputs, sequence, step: this.#step }, own)).tensors
    } catch (error) {
      // Of a link that broke the same question may be asked again; a cache that is no longer there is built again.
      if (error instanceof SparkError && error.code !== 'ERR_IO') this.#begun.delete(stage)
      throw error
    }
  }

  async #begin(stage: Place): Promise<void> {
    if (this.#step > 0) {
      this.#losses++
      if (this.#losses <= maxLosses) throw new CacheLost(`the cache of node ${stage.plan.nodeId} was lost`)
      throw new SparkError('ERR_BUSY', `node ${stage.plan.nodeId} loses its cache each time it is filled`)
    }
    await stage.ask({ op: 'begin', sequence, step: 0 })
    this.#begun.add(stage)
  }

  async #end(): Promise<void> {
    await this.#pipeline.endSequence(sequence)
  }
}
