// dora.ts: gradients of DoRA layers.
import { sparkDomain } from '../graph.js'
import type { GradientRule, GradientTable } from './context.js'
import { addGradients } from './operators.js'

/** x, W, A, B, magnitude, bias, dropout mask; W is frozen. */
const dora: GradientRule = at => {
  if (at.wants(1)) throw at.unsupported('its weight is frozen')
  const operands = [0, 1, 2, 3, 4].map(i => at.input(i))
  const kept = [1, 2, 3, 4].map(i => at.output(i))
  addGradients(at, 'DoRAGrad', [at.dy(), ...operands, ...kept, at.input(6)], [0, 2, 3, 4, 5])
}

/** W, A, B, magnitude; W is frozen. */
const doraWeight: GradientRule = at => {
  if (at.wants(0)) throw at.unsupported('its weight is frozen')
  const inputs = [at.dy(), at.input(0), at.input(1), at.input(2), at.output(1), at.output(2)]
  addGradients(at, 'DoRAWeightGrad', inputs, [1, 2, 3])
}

/** Gradients of DoRA layers. */
export const doraLayers: GradientTable = {
  [sparkDomain]: { DoRA: dora, DoRAWeight: doraWeight },
}
