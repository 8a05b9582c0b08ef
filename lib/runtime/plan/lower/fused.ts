// fused.ts: layers with all that follows them, as fusions make them, on constant weights that are packed once.
import { volume } from '../../../core/shape.js'
import { sparkDomain } from '../../../graph/graph.js'
import type { Activation, StoredWeight } from '../../kernels.js'
import { packedSizes } from '../../packed-weight.js'
import type { Lowering } from '../lowering.js'
import { Buffer, type Operand, type Symbolic } from '../program.js'
import { convShape } from './conv.js'
import { weightOf } from './linear.js'
import { addCopy } from './shape.js'
import type { LowerTable } from './table.js'

/** What follows the sums of a layer with the inputs x, W, bias, residual. */
function epilogue(at: Lowering): {
  bias: Operand | undefined
  residual: Operand | undefined
  activation: Activation
} {
  const activation = at.text('activation', 'none') as Activation
  return { bias: at.optional(2), residual: at.optional(3), activation }
}

/** A constant weight in the layout that kernels of the backend stream. */
function packed(at: Lowering, weight: ReturnType<typeof weightOf>): Symbolic<StoredWeight> {
  if (!at.packs) return weight
  const data = new Buffer('f32', packedSizes(weight).data, 'arena')
  at.step('packWeight', { weight, data: data.write() })
  return { dtype: 'f32', rows: weight.rows, cols: weight.cols, data: data.read(), packed: true }
}

/** Input 1 as rows of output features: [K, N] is turned around unless `transB` says that it is [N, K]. */
function rowsOf(at: Lowering): ReturnType<typeof weightOf> {
  if (at.integer('transB', 0) !== 0) return weightOf(at, 1)
  const [cols = 0, rows = 0] = at.shape(1)
  const data = at.scratch(rows * cols)
  addCopy(at, [rows, cols], [at.read(1), 0, [1, rows]], [data.write(), 0, [cols, 1]])
  return { dtype: 'f32', rows, cols, data: data.read() }
}

/** y = activation(x · W + bias) + residual */
function fusedLinear(at: Lowering): void {
  const weight = rowsOf(at)
  const tokens = volume(at.shape(0).slice(0, -1))
  at.step('linear', { weight: packed(at, weight), tokens, x: at.read(0), ...epilogue(at), y: at.write() })
}

/** y = activation(conv(x, W) + bias) + residual, or the residual before the activation with `residual_first` */
function fusedConv(at: Lowering): void {
  const shape = convShape(at, 0, at.output().shape)
  at.step('conv', {
    ...{ ...shape, weight: weightOf(at, 1), x: at.read(0), ...epilogue(at) },
    ...{ residualFirst: at.integer('residual_first', 0) !== 0, y: at.write() },
  })
}

/** Lowerings of fused layers. */
export const fusedLayers: LowerTable = {
  [sparkDomain]: { FusedLinear: at => at.inF32(fusedLinear), FusedConv: at => at.inF32(fusedConv) },
}
