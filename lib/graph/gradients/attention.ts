// attention.ts: gradients of attention.
import type { GradientRule, GradientTable } from './context.js'
import { addGradients } from './operators.js'

/** Q, K, V; what the mask and the past depend on is frozen. */
const attention: GradientRule = at => {
  if ([3, 4, 5].some(i => at.wants(i))) throw at.unsupported('mask and past are frozen')
  addGradients(at, 'AttentionGrad', [at.dy(), ...at.node.inputs], [0, 1, 2])
}

/** Gradients of attention. */
export const attentions: GradientTable = {
  '': { Attention: attention },
}
