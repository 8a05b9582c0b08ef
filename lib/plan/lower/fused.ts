// fused.ts: linear layers with all that follows them, as fusions make them, on constant weights that are packed once.
import { numel } from '../../core/shape.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Activation, StoredWeight } from '../../kernels/kernels.js'
import type { Lowering } from '../lowering.js'
import { packStep } from '../pack-weights.js'
import type { Symbolic } from '../program.js'
import { computeOf, storedInput, storedOperands, weightOf } from './linear.js'
import { addCopy } from './shape.js'
import type { LowerTable } from './table.js'

/** A constant weight in the layout that kernels of the backend stream. */
function packed(at: Lowering, weight: Symbolic<StoredWeight>): Symbolic<StoredWeight> {
  if (!at.packs || weight.packed) return weight
  const { step, packed } = packStep(weight)
  at.step('packWeight', step.args)
  return packed
}

/** Input 1 as rows of output features: [K, N] is turned around unless `transB` says that it is [N, K]. */
function rowsOf(at: Lowering): Symbolic<StoredWeight> {
  if (at.integer('transB', 0) !== 0) return weightOf(at, 1)
  const stored = storedInput(at, 1)
  if (stored?.transposed) return storedOperands(stored.weight)
  const [cols = 0, rows = 0] = at.shape(1)
  const data = at.scratch(rows * cols)
  addCopy(at, [rows, cols], [at.read(1), 0, [1, rows]], [data.write(), 0, [cols, 1]])
  return { dtype: 'f32', rows, cols, data: data.read() }
}

/** y = activation(x · W + bias) + residual */
function fusedLinear(at: Lowering): void {
  const weight = rowsOf(at)
  const tokens = numel(at.shape(0).slice(0, -1))
  at.step('linear', {
    ...{ weight: packed(at, weight), tokens, x: at.read(0), bias: at.optional(2), residual: at.optional(3) },
    ...{
      activation: at.text('activation', 'none') as Activation,
      compute: computeOf(at, weight),
      y: at.write(),
    },
  })
}

/** Lowerings of fused layers. */
export const fusedLayers: LowerTable = {
  [sparkDomain]: { FusedLinear: at => at.inF32(fusedLinear) },
}
