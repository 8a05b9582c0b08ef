// einsum.ts: gradients of Einstein sums.
import type { GradientRule, GradientTable } from './context.js'
import { addGradients } from './operators.js'

const einsum: GradientRule = at => {
  const operands = at.node.inputs.map((_, i) => i)
  addGradients(at, 'EinsumGrad', [at.dy(), ...at.node.inputs], operands)
}

/** Gradients of Einstein sums. */
export const formulas: GradientTable = {
  '': { Einsum: einsum },
}
