// dora.ts: gradients of DoRA layers.
import { sparkDomain } from '../graph.js'
import type { GradientRule, GradientTable } from './context.js'
import { addGradients } from './operators.js'

/** x, W, A, B, magnitude, bias, dropout mask; W is frozen. */
const dora: GradientRule = ctx => {
  if (ctx.wants(1)) throw ctx.unsupported('its weight is frozen')
  const operands = [0, 1, 2, 3, 4].map(i => ctx.input(i))
  const kept = [1, 2, 3, 4].map(i => ctx.output(i))
  addGradients(ctx, 'DoRAGrad', [ctx.dy(), ...operands, ...kept, ctx.input(6)], [0, 2, 3, 4, 5])
}

/** W, A, B, magnitude; W is frozen. */
const doraWeight: GradientRule = ctx => {
  if (ctx.wants(0)) throw ctx.unsupported('its weight is frozen')
  const inputs = [ctx.dy(), ctx.input(0), ctx.input(1), ctx.input(2), ctx.output(1), ctx.output(2)]
  addGradients(ctx, 'DoRAWeightGrad', inputs, [1, 2, 3])
}

/** Gradients of DoRA layers. */
export const doraLayers: GradientTable = {
  [sparkDomain]: { DoRA: dora, DoRAWeight: doraWeight },
}
