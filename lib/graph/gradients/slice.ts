// slice.ts: gradients of slices, pads, concatenations and repetitions.
import { int, intOf } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientRule, GradientTable } from './context.js'
import { moved } from './operators.js'

const concat: GradientRule = ctx => {
  const { inputs, attributes } = ctx.node
  const wanted = inputs.map((_, i) => ctx.wants(i))
  const gradients = ctx.addMany('ConcatGrad', [ctx.dy(), ...inputs], wanted, attributes, sparkDomain)
  gradients.forEach((gradient, i) => {
    ctx.give(i, gradient)
  })
}

/** Parts that nobody used have the gradient 0. */
const split: GradientRule = ctx => {
  const parts = ctx.node.outputs.map((_, i) => {
    return ctx.gradient(i) ?? ctx.add('ConstantOfShape', [ctx.add('Shape', [ctx.output(i)])])
  })
  ctx.give(0, ctx.add('Concat', parts, { axis: int(intOf(ctx.node, 'axis')) }))
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
