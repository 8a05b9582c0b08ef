// shape.ts: gradients of operators that move, repeat or quantize elements.
import { int, intOf, ints, intsOf } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientRule, GradientTable } from './context.js'

const reshaped: GradientRule = at => {
  const shape = at.add('Shape', [at.input(0)])
  at.give(0, at.add('Reshape', [at.dy(), shape], { allowzero: int(1) }))
}

const transpose: GradientRule = at => {
  const order = intsOf(at.node, 'perm')
  const back = order?.map((_, axis) => order.indexOf(axis))
  at.give(0, at.add('Transpose', [at.dy()], back ? { perm: ints(back) } : {}))
}

/** An operator of ours that takes dy, x and what else the node reads, and gives dx. */
const moved =
  (op: string): GradientRule =>
  at =>
    at.give(0, at.add(op, [at.dy(), ...at.node.inputs], at.node.attributes, sparkDomain))

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

/** condition, a, b */
const where: GradientRule = at => {
  const [dy, zero] = [at.dy(), at.constant(0)]
  const chosen = [
    [1, dy, zero],
    [2, zero, dy],
  ] as const
  for (const [i, yes, no] of chosen) {
    if (at.wants(i)) at.giveSummed(i, at.add('Where', [at.input(0), yes, no]))
  }
}

/** Only floats have gradients. */
const cast: GradientRule = at => at.give(0, at.add('CastLike', [at.dy(), at.input(0)]))

/**
 * Straight through: what is quantized moves with x as long as it does not saturate, which costs more than half a step, and
 * codes count like the numbers that they stand for.
 */
const quantize: GradientRule = at => {
  const [x, scale, ...zero] = at.node.inputs as [string, string, ...string[]]
  if (at.rank(1) !== 0) throw at.unsupported('its scale is no single number')
  const attributes = at.node.attributes.output_dtype ? {} : at.node.attributes
  const number = at.add('DequantizeLinear', [at.output(), scale, ...zero], attributes)
  const error = at.add('Abs', [at.add('Sub', [x, number])])
  // A thousandth more, because numbers in the middle between two steps are rounded, too.
  const isNear = at.add('LessOrEqual', [error, at.add('Mul', [scale, at.constant(0.501)])])
  at.give(0, at.add('Where', [isNear, at.dy(), at.constant(0)]))
}

/** Rules of operators on shapes. */
export const shape: GradientTable = {
  '': {
    Identity: at => at.give(0, at.dy()),
    Dropout: at => at.give(0, at.dy()),
    Cast: cast,
    DequantizeLinear: at => at.give(0, at.dy()),
    DynamicQuantizeLinear: at => at.give(0, at.gradient(0)!),
    QuantizeLinear: quantize,
    Reshape: reshaped,
    Flatten: reshaped,
    Squeeze: reshaped,
    Unsqueeze: reshaped,
    Transpose: transpose,
    Expand: at => at.giveSummed(0, at.dy()),
    Concat: concat,
    Split: split,
    Slice: moved('SliceGrad'),
    Pad: moved('PadGrad'),
    Tile: moved('TileGrad'),
    Resize: moved('ResizeGrad'),
    Gather: moved('GatherGrad'),
    Where: where,
  },
}
