// table.ts: the gradient rule of every operator that has one.
import type { Node } from '../graph.js'
import type { GradientRule } from './context.js'
import { elementwise } from './elementwise.js'
import { layers } from './layers.js'
import { shape } from './shape.js'

const families = [elementwise, shape, layers]

/** The rule for a node; undefined where its operator has none. */
export function ruleOf({ domain, op }: Node): GradientRule | undefined {
  for (const family of families) {
    const rules = family[domain]
    if (rules && Object.hasOwn(rules, op)) return rules[op]
  }
  return undefined
}
