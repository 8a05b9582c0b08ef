// loss.ts: gradients of losses.
import { sparkDomain } from '../graph.js'
import type { GradientRule, GradientTable } from './context.js'

const crossEntropy: GradientRule = at => {
  const inputs = [at.dy(), ...at.node.inputs]
  at.give(0, at.add('SoftmaxCrossEntropyLossGrad', inputs, at.node.attributes, sparkDomain))
}

/** Gradients of losses. */
export const losses: GradientTable = {
  '': { SoftmaxCrossEntropyLoss: crossEntropy },
}
