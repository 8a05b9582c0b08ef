// fused.ts: layers with all that follows them, as fusions make them, on constant weights that are packed once.
import { volume } from '../../../core/shape.js'
import { sparkDomain } from '../../../graph/graph.js'
import type { Activation, ConvShape, StoredWeight } from '../../kernels.js'
import { packedSizes } from '../../packed-weight.js'
import type { Lowering } from '../lowering.js'
import { Buffer, type Operand, type Symbolic } from '../program.js'
import { convShape } from './conv.js'
import { computeOf, storedInput, storedOperands, weightOf } from './linear.js'
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
function packed(at: Lowering, weight: Symbolic<StoredWeight>): Symbolic<StoredWeight> {
  if (!at.packs || weight.packed) return weight
  const sizes = packedSizes(weight)
  const data = new Buffer(weight.data.buffer.dtype, sizes.data, 'arena')
  const scales = weight.blockScale && new Buffer('u8', sizes.blockScale, 'arena')
  at.step('packWeight', { weight, data: data.write(), blockScale: scales?.write() })
  return { ...weight, data: data.read(), ...(scales && { blockScale: scales.read() }), packed: true }
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
  const tokens = volume(at.shape(0).slice(0, -1))
  at.step('linear', {
    ...{ weight: packed(at, weight), tokens, x: at.read(0), ...epilogue(at) },
    ...{ compute: computeOf(at, weight), y: at.write() },
  })
}

/** Positions of an image up to which the CPU streams the weight instead of them. */
const fewPositions = 64

/** Where Winograd's algorithm is worth it: tiles of 4 x 4 in an image, channels and filters, their product for each tile. */
const [fewTiles, fewChannels, fewWeights, weightsPerTile] = [32, 16, 1 << 10, 1 << 13]

/** The filters as Winograd's algorithm takes them, where it is faster. Whether depends on the sizes of one image alone. */
function winograd(at: Lowering, shape: ConvShape, weight: ReturnType<typeof weightOf>): Operand | undefined {
  const { kernel, strides, dilations, groups, out } = shape
  const [filters, channels] = [weight.rows, weight.cols / 9]
  const fits = groups === 1 && kernel.length === 2 && [...strides, ...dilations].every(step => step === 1)
  if (!at.packs || !fits || !kernel.every(size => size === 3)) return undefined
  const tiles = volume(out.map(size => Math.ceil(size / 4)))
  const weights = filters * channels
  if (Math.min(filters, channels) < fewChannels || tiles < fewTiles) return undefined
  if (weights < fewWeights || weights > weightsPerTile * tiles) return undefined
  const data = new Buffer('f32', 36 * filters * channels, 'arena')
  at.step('winogradWeight', { weight, data: data.write() })
  return data.read()
}

/** y = activation(conv(x, W) + bias) + residual, or the residual before the activation with `residual_first` */
function fusedConv(at: Lowering): void {
  const shape = convShape(at, 0, at.output().shape)
  const weight = weightOf(at, 1)
  const small = shape.groups === 1 && volume(shape.out) <= fewPositions
  at.step('conv', {
    ...{ ...shape, weight: small ? packed(at, weight) : weight, x: at.read(0), ...epilogue(at) },
    ...{ residualFirst: at.integer('residual_first', 0) !== 0, y: at.write() },
    winograd: winograd(at, shape, weight),
  })
}

/** Lowerings of fused layers. */
export const fusedLayers: LowerTable = {
  [sparkDomain]: { FusedLinear: at => at.inF32(fusedLinear), FusedConv: at => at.inF32(fusedConv) },
}
