// attention.ts: gradients of attention.
import type { GradientRule, GradientTable } from './context.js'
import { addGradients } from './operators.js'

/** Q, K, V; what the mask and the past depend on is frozen. */
const attention: GradientRule = ctx => {
  if ([3, 4, 5].some(i => ctx.wants(i))) throw ctx.unsupported('mask and past are frozen')
  addGradients(ctx, 'AttentionGrad', [ctx.dy(), ...ctx.node.inputs], [0, 1, 2])
}

/** Gradients of attention. */
export const attentions: GradientTable = {
  '': { Attention: attention },
}
