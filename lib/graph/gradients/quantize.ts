// quantize.ts: straight-through gradients of conversions to and from quantized tensors.
import type { GradientRule, GradientTable } from './context.js'

/**
 * Straight through: what is quantized moves with x as long as it does not saturate, which costs more than half a step, and
 * codes count like the numbers that they stand for.
 */
const quantize: GradientRule = ctx => {
  const [x, scale, ...zero] = ctx.node.inputs as [string, string, ...string[]]
  if (ctx.rank(1) !== 0) throw ctx.unsupported('its scale is no single number')
  const attributes = ctx.node.attributes.output_dtype ? {} : ctx.node.attributes
  const number = ctx.add('DequantizeLinear', [ctx.output(), scale, ...zero], attributes)
  const error = ctx.add('Abs', [ctx.add('Sub', [x, number])])
  // A thousandth more, because numbers in the middle between two steps are rounded, too.
  const isNear = ctx.add('LessOrEqual', [error, ctx.add('Mul', [scale, ctx.constant(0.501)])])
  ctx.give(0, ctx.add('Where', [isNear, ctx.dy(), ctx.constant(0)]))
}

/** Gradients of conversions. */
export const quantization: GradientTable = {
  '': {
    DequantizeLinear: ctx => ctx.give(0, ctx.dy()),
    QuantizeLinear: quantize,
    DynamicQuantizeLinear: ctx => ctx.give(0, ctx.gradient(0)!),
  },
}
