// table.ts: the gradient rules of all operators, by family; shapes/ and lower/ have the same stems.
import { isFloat } from '../../core/dtype.js'
import { intOf } from '../attributes.js'
import { elementTypeOf } from '../element-types.js'
import { entryOf, type Families } from '../families.js'
import type { Node } from '../graph.js'
import { attentions } from './attention.js'
import { constants } from './constant.js'
import type { GradientRule } from './context.js'
import { convolutions } from './conv.js'
import { doraLayers } from './dora.js'
import { formulas } from './einsum.js'
import { elementwise } from './elementwise.js'
import { gathers } from './gather.js'
import { images } from './image.js'
import { losses } from './loss.js'
import { matmuls } from './matmul.js'
import { normalizations } from './normalization.js'
import { pooling } from './pool.js'
import { quantization } from './quantize.js'
import { randomness } from './random.js'
import { reductions } from './reduce.js'
import { reshaping } from './reshape.js'
import { searches } from './search.js'
import { slicing } from './slice.js'
import { softmaxes } from './softmax.js'

/** Gradients by the stem of their file. */
export const families: Families<GradientRule | 'none'> = {
  attention: attentions,
  constant: constants,
  conv: convolutions,
  dora: doraLayers,
  einsum: formulas,
  elementwise,
  gather: gathers,
  image: images,
  loss: losses,
  matmul: matmuls,
  normalization: normalizations,
  pool: pooling,
  quantize: quantization,
  random: randomness,
  reduce: reductions,
  reshape: reshaping,
  search: searches,
  slice: slicing,
  softmax: softmaxes,
}

/** The rule for a node; undefined where its operator has none. */
export function gradientRuleOf(node: Node): GradientRule | undefined {
  const entry = entryOf(families, node)
  return entry === 'none' ? undefined : entry
}

/** Whether the outputs of a node are constant wherever they are differentiable: gradients end here. */
export function stopsGradients(node: Node): boolean {
  if (node.domain === '' && node.op === 'Cast') return !isFloat(elementTypeOf(intOf(node, 'to'), 'Cast: to'))
  return entryOf(families, node) === 'none'
}
