// table.ts: the interface of host operators.
import type { Node, Subgraph } from '../../graph/graph.js'
import type { HostValue } from '../values.js'

/** A node during a run. */
export interface HostCall {
  readonly node: Node
  /** Undefined for an input that was left out. */
  readonly inputs: readonly (HostValue | undefined)[]
  /** Runs a subgraph of the node; tensors may lie in memory that its next run overwrites. */
  readonly run: (graph: Subgraph, inputs: readonly HostValue[]) => Promise<HostValue[]>
}

/** Computes the outputs of a node. */
export type HostOperator = (call: HostCall) => HostValue[] | Promise<HostValue[]>
