// table.ts: the rows of all operators, by family; gradients/ and plan/lower/ have the same stems.
import { entryOf, type Families, familyOf as familyIn } from '../families.js'
import type { Node } from '../graph.js'
import { attentions } from './attention.js'
import { constants } from './constant.js'
import { control } from './control.js'
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
import type { OperatorRow } from './row.js'
import { searches } from './search.js'
import { sequences } from './sequence.js'
import { signals } from './signal.js'
import { slicing } from './slice.js'
import { softmaxes } from './softmax.js'
import { strings } from './string.js'

/** Rows by the stem of their file. */
export const families: Families<OperatorRow> = {
  attention: attentions,
  constant: constants,
  control,
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
  sequence: sequences,
  signal: signals,
  slice: slicing,
  softmax: softmaxes,
  string: strings,
}

/** The row of the operator of a node; undefined for an operator that is not known. */
export const rowOf = (node: Node): OperatorRow | undefined => entryOf(families, node)

/** The family of the operator of a node; undefined for an operator that is not known. */
export const familyOf = (node: Node): string | undefined => familyIn(families, node)
