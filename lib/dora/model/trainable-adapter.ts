// trainable-adapter.ts: the interface of adapters for training.
import type { Graph } from '../../graph/graph.js'
import type { DropoutSites } from '../../graph/rewrites/insert-lora.js'

/** How parameters were trained, as plain values by name: settings, steps, and what the data were. */
export type TrainingRecord = Readonly<Record<string, unknown>>

/** An adapter that can be trained: a graph that contains it, and parameters to read and write. */
export interface TrainableAdapter {
  /**
   * The base model with the nodes of the adapter; every parameter is an f32 initializer.
   * @internal
   */
  readonly graph: Graph
  /**
   * The model without the adapter, if known.
   * @internal
   */
  readonly base?: Graph
  /** Names of the parameters, in a fixed order. */
  readonly parameters: readonly string[]
  /** Dropout probability of the adapter's inputs in training. Default: 0. */
  readonly dropout?: number
  /**
   * Where dropout belongs in a graph without DoRA nodes.
   * @internal
   */
  readonly dropoutSites?: DropoutSites | undefined
  /**
   * Settings that training depends on, besides the parameters, as plain values by name.
   * @internal
   */
  readonly settings?: Readonly<Record<string, unknown>>
  /** The sha256 of each adapted frozen weight by module name, if known. */
  baseHashes?(): ReadonlyMap<string, string>
  /** A copy of the values of a parameter, row-major. */
  read(parameter: string): Float32Array
  /** Replaces the values of a parameter; they are copied. */
  write(parameter: string, values: Float32Array): void
  /** Remembers how the parameters were trained, for files. */
  record?(training: TrainingRecord): void
}
