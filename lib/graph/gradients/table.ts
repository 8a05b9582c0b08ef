// table.ts: the gradient rule of every operator that has one.
import { intOf } from '../attributes.js'
import { elementTypeOf } from '../element-types.js'
import { type Node, sparkDomain } from '../graph.js'
import type { GradientRule } from './context.js'
import { elementwise } from './elementwise.js'
import { layers } from './layers.js'
import { reductions } from './reduce.js'
import { shape } from './shape.js'

const families = [elementwise, shape, reductions, layers]

/** The rule for a node; undefined where its operator has none. */
export function ruleOf({ domain, op }: Node): GradientRule | undefined {
  for (const family of families) {
    const rules = Object.hasOwn(family, domain) ? family[domain] : undefined
    if (rules && Object.hasOwn(rules, op)) return rules[op]
  }
  return undefined
}

/** Operators whose outputs do not move with their inputs: steps, comparisons, sizes, places. */
const steps = new Set([
  ...['And', 'ArgMax', 'ArgMin', 'BitwiseAnd', 'BitwiseNot', 'BitwiseOr', 'BitwiseXor', 'Ceil'],
  ...['ConstantOfShape', 'Equal', 'EyeLike', 'Floor', 'Greater', 'GreaterOrEqual', 'IsInf', 'IsNaN'],
  ...[
    'Less',
    'LessOrEqual',
    'NonZero',
    'Not',
    'OneHot',
    'Or',
    'Range',
    'Round',
    'Shape',
    'Sign',
    'Size',
    'Xor',
  ],
])

/** Whether the gradient of a node is 0 or there is none: it ends here. */
export function isStep(node: Node): boolean {
  if (node.domain !== '') return node.domain === sparkDomain && node.op === 'DropoutMask'
  if (node.op !== 'Cast') return steps.has(node.op)
  return !/^(f|bf)/.test(elementTypeOf(intOf(node, 'to', 1), 'Cast: to'))
}
