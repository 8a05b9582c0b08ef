// loss.ts: gradients of losses.
import { sparkDomain } from '../graph.js'
import type { GradientRule, GradientTable } from './context.js'

const crossEntropy: GradientRule = ctx => {
  const inputs = [ctx.dy(), ...ctx.node.inputs]
  ctx.give(0, ctx.add('SoftmaxCrossEntropyLossGrad', inputs, ctx.node.attributes, sparkDomain))
}

/** Gradients of losses. */
export const losses: GradientTable = {
  '': { SoftmaxCrossEntropyLoss: crossEntropy },
}
