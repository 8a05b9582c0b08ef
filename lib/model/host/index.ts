// index.ts: the table of host operators, which run between compiled segments.
import type { Node } from '../../graph/graph.js'
import { controlFlow } from './control-flow.js'
import { selections } from './selections.js'
import { sequences } from './sequences.js'
import type { HostOperator } from './table.js'

const operators: Readonly<Record<string, HostOperator>> = { ...controlFlow, ...sequences, ...selections }

/** How a node runs on the host; undefined when it cannot. */
export function hostOperatorOf({ domain, op }: Node): HostOperator | undefined {
  return domain === '' && Object.hasOwn(operators, op) ? operators[op] : undefined
}

/** Whether a node runs on the host. */
export const isHostOperator = (node: Node): boolean => hostOperatorOf(node) !== undefined

/** Names of all operators that run on the host. */
export const hostOperators: readonly string[] = Object.keys(operators)
