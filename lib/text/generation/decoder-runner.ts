// decoder-runner.ts: runs batches on the graph of a decoder, whose cache of keys and values stays with the model.
import type { Graph } from '../../graph/graph.js'
import type { Tensor } from '../../memory/tensor.js'
import type { ModelBackendChoice, ModelStats } from '../../model/engine.js'
import { Model } from '../../model/model.js'
import type { ModelOptions } from '../../model/model-options.js'
import type { ModelState } from '../../model/model-state.js'
import type { StatePairs } from '../../model/state-pairs.js'
import type { StatefulModel } from '../../model/stateful-model.js'
import { nextPrefix } from '../architectures/decoder.js'
import type { Batch } from './batch.js'
import type { RowOutput } from './token-request.js'

/** Rows of a batch by output. */
export type BatchRows = Readonly<Partial<Record<RowOutput, Float32Array>>>

/** What runs batches of a decoder, and keeps its keys and values. */
export interface BatchRunner {
  /** What it runs on. */
  readonly backend: ModelBackendChoice
  /** What was compiled so far. */
  readonly stats: ModelStats
  /** Batches of different sequences that it works on at a time. Default: 1. */
  readonly batches?: number
  /**
   * Runs a batch; the rows are valid until the next one.
   * @throws CacheLost where keys and values are gone
   */
  run(batch: Batch, outputs: readonly RowOutput[]): Promise<BatchRows>
  /** Forgets keys and values, as after a run that failed. */
  reset(): Promise<void>
  /** Frees what the next batch makes again: plans and their memory. */
  trim(): Promise<void>
  /**
   * Calls `work` with the caches by the names of their inputs, where they are and after all runs that were asked for; undefined where
   * they are on other machines.
   */
  readonly visit?: <T>(work: (caches: ReadonlyMap<string, ModelState>) => T) => Promise<T>
  /** Frees model and cache, once all runs that were asked for have ended. */
  dispose(): void | Promise<void>
}

/** A decoder that runs batches on this machine. */
export class DecoderRunner implements BatchRunner {
  readonly #model: Model
  readonly #states: StatefulModel

  private constructor(model: Model, states: StatePairs) {
    this.#model = model
    this.#states = model.bindState(states)
  }

  /**
   * Opens a graph of `decoderGraph`.
   * @throws SparkError as `Model.fromGraph`
   */
  static async open(graph: Graph, options: ModelOptions): Promise<DecoderRunner> {
    const next = graph.outputs.map(({ name }) => name).filter(name => name.startsWith(nextPrefix))
    const states = next.map(output => [output.slice(nextPrefix.length), { output, axis: null }] as const)
    return new DecoderRunner(await Model.fromGraph(graph, options), Object.fromEntries(states))
  }

  get backend(): ModelBackendChoice {
    return this.#model.backend
  }

  get stats(): ModelStats {
    return this.#model.stats
  }

  async run(batch: Batch, outputs: readonly RowOutput[]): Promise<BatchRows> {
    const results = await this.#states.run<Record<RowOutput, 'f32'>>(batch.feeds, { outputs })
    return Object.fromEntries(outputs.map(name => [name, results[name].data]))
  }

  async reset(): Promise<void> {
    await this.#states.reset()
  }

  async trim(): Promise<void> {
    await this.#states.trim()
    await this.#model.trim()
  }

  /** Copies of the caches by the names of their inputs. */
  async caches(): Promise<Record<string, Tensor>> {
    return (await this.#states.states()) as Record<string, Tensor>
  }

  visit<T>(work: (caches: ReadonlyMap<string, ModelState>) => T): Promise<T> {
    return this.#states.visit(work)
  }

  dispose(): void {
    this.#states.dispose()
    this.#model.dispose()
  }
}
