// quantize.ts: straight-through gradients of conversions to and from quantized tensors.
import type { GradientRule, GradientTable } from './context.js'

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

/** Gradients of conversions. */
export const quantization: GradientTable = {
  '': {
    DequantizeLinear: at => at.give(0, at.dy()),
    QuantizeLinear: quantize,
    DynamicQuantizeLinear: at => at.give(0, at.gradient(0)!),
  },
}
