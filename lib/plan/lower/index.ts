// index.ts: the table of all operators that have kernels.
import type { Node } from '../../graph/graph.js'
import { attentions } from './attention.js'
import { convolution } from './conv.js'
import { formulas } from './einsum.js'
import { elementwise } from './elementwise.js'
import { fusedLayers } from './fused.js'
import { gradients } from './gradients.js'
import { images } from './image.js'
import { indexed } from './indexed.js'
import { bytes } from './integer.js'
import { linear } from './linear.js'
import { losses } from './loss.js'
import { movement } from './move.js'
import { normalizations } from './normalization.js'
import { optimizers } from './optimizers.js'
import { pooling } from './pool.js'
import { quantized } from './quantize.js'
import { recurrences } from './recurrent.js'
import { reductions } from './reduce.js'
import { shape } from './shape.js'
import type { Lower } from './table.js'
import { training } from './training.js'

const families = [
  elementwise,
  shape,
  movement,
  indexed,
  quantized,
  bytes,
  images,
  attentions,
  fusedLayers,
  normalizations,
  losses,
  formulas,
  recurrences,
  optimizers,
  reductions,
  linear,
  convolution,
  pooling,
  training,
  gradients,
]

/** How a node becomes kernel calls; undefined for an operator without kernels. */
export function loweringOf({ domain, op }: Node): Lower | undefined {
  for (const family of families) {
    const rules = Object.hasOwn(family, domain) ? family[domain] : undefined
    if (rules && Object.hasOwn(rules, op)) return rules[op]
  }
  return undefined
}

/** All operators that have kernels, by domain. */
export function loweredOperators(): Map<string, string[]> {
  const operators = new Map<string, string[]>()
  for (const [domain, rules] of families.flatMap(family => Object.entries(family))) {
    operators.set(domain, [...(operators.get(domain) ?? []), ...Object.keys(rules)].sort())
  }
  return operators
}
