// kinds.ts: kinds of operators, which give boxes their colours.
import type { Node } from '../../graph/graph.js'
import { familyOf } from '../../graph/shapes/table.js'

/** A kind of boxes. */
export interface Kind {
  /** What the legend calls it. */
  readonly name: string
  /** CSS class. */
  readonly className: string
  /** Hue in degrees of OKLCH; grey without one. */
  readonly hue?: number
}

const kind = (name: string, hue?: number): Kind => ({
  name,
  className: name.replace(' ', '-'),
  ...(hue !== undefined && { hue }),
})

export const inputKind = kind('input')
export const outputKind = kind('output')
const otherKind = kind('other')

const convolution = kind('convolution', 255)
const product = kind('matrix product', 150)
const attention = kind('attention', 310)
const normalization = kind('normalization', 85)
const elementwise = kind('elementwise', 45)
const pooling = kind('pooling', 205)
const reduction = kind('reduction', 120)
const recurrence = kind('recurrence', 280)
const quantization = kind('quantization', 345)
const movement = kind('data movement')
const control = kind('control flow', 15)

/** All kinds, in the order of the legend. */
export const kinds: readonly Kind[] = [
  inputKind,
  convolution,
  product,
  attention,
  recurrence,
  normalization,
  elementwise,
  pooling,
  reduction,
  quantization,
  movement,
  control,
  otherKind,
  outputKind,
]

/** Kinds by the family of an operator. */
const byFamily: Readonly<Record<string, Kind>> = {
  attention,
  constant: movement,
  control,
  conv: convolution,
  dora: product,
  einsum: product,
  elementwise,
  gather: movement,
  image: pooling,
  loss: elementwise,
  matmul: product,
  normalization,
  pool: pooling,
  qlinear: quantization,
  quantize: quantization,
  random: elementwise,
  recurrent: recurrence,
  reduce: reduction,
  reshape: movement,
  search: reduction,
  sequence: movement,
  signal: pooling,
  slice: movement,
  softmax: normalization,
  string: movement,
}

/** The kind of a node's operator. */
export const kindOf = (node: Node): Kind => byFamily[familyOf(node) ?? ''] ?? otherKind
