// slice.ts: gradients of slices, pads, concatenations and repetitions.
import { int, intOf } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientRule, GradientTable } from './context.js'
import { moved } from './operators.js'

const concat: GradientRule = at => {
  const { inputs, attributes } = at.node
  const wanted = inputs.map((_, i) => at.wants(i))
  const gradients = at.addMany('ConcatGrad', [at.dy(), ...inputs], wanted, attributes, sparkDomain)
  gradients.forEach((gradient, i) => {
    at.give(i, gradient)
  })
}

/** Parts that nobody used have the gradient 0. */
const split: GradientRule = at => {
  const parts = at.node.outputs.map((_, i) => {
    return at.gradient(i) ?? at.add('ConstantOfShape', [at.add('Shape', [at.output(i)])])
  })
  at.give(0, at.add('Concat', parts, { axis: int(intOf(at.node, 'axis', 0)) }))
}

/** Gradients of operators that cut, join, repeat and pad. */
export const slicing: GradientTable = {
  '': {
    Slice: moved('SliceGrad'),
    Split: split,
    Concat: concat,
    Tile: moved('TileGrad'),
    Pad: moved('PadGrad'),
  },
}
