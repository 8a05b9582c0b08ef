// index.ts: the table of all operators that have kernels.
import type { Node } from '../../../graph/graph.js'
import { convolution } from './conv.js'
import { elementwise } from './elementwise.js'
import { linear } from './linear.js'
import { pooling } from './pool.js'
import { reductions } from './reduce.js'
import { shape } from './shape.js'
import type { Lower } from './table.js'
import { training } from './training.js'

const families = [elementwise, shape, reductions, linear, convolution, pooling, training]

/** How a node becomes kernel calls; undefined for an operator without kernels. */
export function loweringOf({ domain, op }: Node): Lower | undefined {
  for (const family of families) {
    const rules = family[domain]
    if (rules && Object.hasOwn(rules, op)) return rules[op]
  }
  return undefined
}
