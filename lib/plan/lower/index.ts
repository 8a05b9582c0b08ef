// index.ts: the table of all operators that have kernels, by family; shapes/ and gradients/ have the same stems.
import { entryOf, type Families } from '../../graph/families.js'
import type { Node } from '../../graph/graph.js'
import { attentions } from './attention.js'
import { constants } from './constant.js'
import { convolutions } from './conv.js'
import { doraLayers } from './dora.js'
import { formulas } from './einsum.js'
import { elementwise } from './elementwise.js'
import { expertLayers } from './experts.js'
import { gathers } from './gather.js'
import { images } from './image.js'
import { losses } from './loss.js'
import { matmuls } from './matmul.js'
import { normalizations } from './normalization.js'
import { optimizers } from './optimizer.js'
import { pagedAttentions } from './paged-attention.js'
import { pooling } from './pool.js'
import { quantizedArithmetic } from './qlinear.js'
import { quantization } from './quantize.js'
import { randomness } from './random.js'
import { recurrences } from './recurrent.js'
import { reductions } from './reduce.js'
import { reshaping } from './reshape.js'
import { searches } from './search.js'
import { slicing } from './slice.js'
import { softmaxes } from './softmax.js'
import type { Lower } from './table.js'

/** Lowerings by the stem of their file. */
export const families: Families<Lower> = {
  attention: attentions,
  constant: constants,
  conv: convolutions,
  dora: doraLayers,
  einsum: formulas,
  elementwise,
  experts: expertLayers,
  gather: gathers,
  image: images,
  loss: losses,
  matmul: matmuls,
  normalization: normalizations,
  optimizer: optimizers,
  'paged-attention': pagedAttentions,
  pool: pooling,
  qlinear: quantizedArithmetic,
  quantize: quantization,
  random: randomness,
  recurrent: recurrences,
  reduce: reductions,
  reshape: reshaping,
  search: searches,
  slice: slicing,
  softmax: softmaxes,
}

/** How a node becomes kernel calls; undefined for an operator without kernels. */
export const loweringOf = (node: Node): Lower | undefined => entryOf(families, node)

/** All operators that have kernels, by domain. */
export function loweredOperators(): Map<string, string[]> {
  const operators = new Map<string, string[]>()
  for (const [domain, rules] of Object.values(families).flatMap(family => Object.entries(family))) {
    operators.set(domain, [...(operators.get(domain) ?? []), ...Object.keys(rules)].sort())
  }
  return operators
}
