// einsum.ts: gradients of Einstein sums.
import type { GradientRule, GradientTable } from './context.js'
import { addGradients } from './operators.js'

const einsum: GradientRule = ctx => {
  const operands = ctx.node.inputs.map((_, i) => i)
  addGradients(ctx, 'EinsumGrad', [ctx.dy(), ...ctx.node.inputs], operands)
}

/** Gradients of Einstein sums. */
export const formulas: GradientTable = {
  '': { Einsum: einsum },
}
