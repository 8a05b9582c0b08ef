// trainable-adapter.ts: what training needs of an adapter.
import type { Graph } from '../../graph/graph.js'

/** An adapter as training sees it: a graph it was inserted into, and parameters that can be read and written. */
export interface TrainableAdapter {
  /**
   * The base model with the adapter's nodes; every parameter is an initializer of f32.
   * @internal
   */
  readonly graph: Graph
  /**
   * The model without the adapter. Default: nobody knows.
   * @internal
   */
  readonly base?: Graph
  /** Names of the parameters, in an order that never changes. */
  readonly parameters: readonly string[]
  /** Probability that an input of the adapter is dropped in training. Default: 0. */
  readonly dropout?: number
  /**
   * What a training of it depends on beside its parameters, by name: plain values.
   * @internal
   */
  readonly settings?: Readonly<Record<string, unknown>>
  /** The sha256 of each frozen weight that has an adapter, by the name of its module. Default: nobody knows. */
  baseHashes?(): ReadonlyMap<string, string>
  /** The values of a parameter, row-major: a copy. */
  read(parameter: string): Float32Array
  /** Replaces the values of a parameter; they are copied. */
  write(parameter: string, values: Float32Array): void
}
