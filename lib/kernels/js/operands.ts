// operands.ts: checks of kernel arguments, the same that the addon makes.
import { argumentError, expectAttached, expectInteger, expectNumber, expectOneOf } from '../../core/checks.js'
import type { ElementType } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { nvfp4Block } from '../../precision/kernels.js'
import { swizzledLength } from '../../precision/scale-order.js'
import { formatInfo, kernelFormats, weightSizes } from '../../weights/formats.js'
import { panelSizes } from '../../weights/panels.js'
import type { Compute, KernelArgs, KernelOp, MatrixStrides, Weight } from '../kernels.js'
import { activations } from './activations.js'
import { arrayTypes, expectArrayType, weightArrayType } from './array-types.js'
import { integerSizes } from './integer-operands.js'
import { expectProductCompute, networkSizes } from './network-operands.js'
import { expectViews, isOnViews, viewSizes } from './view-operands.js'
import { poolSizes } from './window-operands.js'
import { winogradSize } from './winograd.js'

/** Names of the arrays of an operation and the elements they need; a name that ends in '?' may be absent. */
type Sizes = Readonly<Record<string, number>>

const lowRankSizes = (rank: number, rows: number, cols: number): Sizes => ({ a: rank * cols, b: rows * rank })

const sizes: { readonly [Op in KernelOp]: (args: KernelArgs[Op]) => Sizes } = {
  ...networkSizes,
  ...integerSizes,
  amax: ({ count }) => ({ src: count, out: 1 }),
  nvfp4Quantize: ({ rows, cols }) => ({ src: rows * cols, ...nvfp4Sizes(rows, cols) }),
  nvfp4Dequantize: ({ rows, cols }) => ({ ...nvfp4Sizes(rows, cols), dst: rows * cols }),
  fp8Quantize: ({ rows, cols, blockRows, blockCols }) => ({
    src: rows * cols,
    codes: rows * cols,
    scale: Math.ceil(rows / blockRows) * Math.ceil(cols / blockCols),
  }),
  swizzleScales: ({ rows, cols, inverse }) => {
    const tiles = swizzledLength(rows, cols)
    return inverse ? { src: tiles, dst: rows * cols } : { src: rows * cols, dst: tiles }
  },
  packWeight: ({ weight }) => {
    const { data, blockScale } = panelSizes(weight)
    return { data, ...(blockScale > 0 && { blockScale }) }
  },
  winogradWeight: ({ weight: { rows, cols } }) => ({ data: winogradSize(rows, cols) }),
  linear: ({ weight: { rows, cols }, tokens }) => ({
    x: tokens * cols,
    'rowScale?': rows,
    'bias?': rows,
    'residual?': tokens * rows,
    y: tokens * rows,
  }),
  linearBackward: ({ weight: { rows, cols }, tokens }) => ({
    x: tokens * cols,
    dy: tokens * rows,
    'dx?': tokens * cols,
    'dweight?': rows * cols,
    'dbias?': rows,
  }),
  matmul: ({ outer, inner, m, n, k, aStrides, bStrides, yStrides }) => ({
    a: extent([outer, inner, m, k], aStrides),
    b: extent([outer, inner, k, n], bStrides),
    y: extent([outer, inner, m, n], yStrides),
  }),
  weightNorm2: ({ weight: { rows } }) => ({ out: rows }),
  doraNorm: ({ weight: { rows, cols }, rank }) => ({
    ...lowRankSizes(rank, rows, cols),
    weightNorm2: rows,
    magnitude: rows,
    norm: rows,
    gain: rows,
  }),
  doraForward: ({ weight: { rows, cols }, rank, tokens }) => ({
    ...lowRankSizes(rank, rows, cols),
    x: tokens * cols,
    gain: rows,
    'bias?': rows,
    'mask?': tokens * cols,
    xa: tokens * rank,
    'z?': tokens * rows,
    y: tokens * rows,
  }),
  doraMixed: ({ weight: { rows, cols }, tokens }) => ({
    x: tokens * cols,
    index: tokens,
    'bias?': rows,
    y: tokens * rows,
  }),
  doraBackward: ({ weight: { rows, cols }, rank, tokens }) => ({
    ...lowRankSizes(rank, rows, cols),
    x: tokens * cols,
    'mask?': tokens * cols,
    dy: tokens * rows,
    xa: tokens * rank,
    z: tokens * rows,
    norm: rows,
    gain: rows,
    magnitude: rows,
    'dx?': tokens * cols,
    da: rank * cols,
    db: rows * rank,
    dmagnitude: rows,
    'dbias?': rows,
  }),
  doraMerge: ({ weight: { rows, cols }, rank }) => ({
    ...lowRankSizes(rank, rows, cols),
    gain: rows,
    merged: rows * cols,
  }),
  doraMergeBackward: ({ weight: { rows, cols }, rank }) => ({
    ...lowRankSizes(rank, rows, cols),
    dmerged: rows * cols,
    norm: rows,
    gain: rows,
    dv: rows * cols,
    da: rank * cols,
    db: rows * rank,
    dmagnitude: rows,
  }),
  doraUnmerge: ({ rows, cols, rank }) => ({
    ...lowRankSizes(rank, rows, cols),
    merged: rows * cols,
    gain: rows,
    restored: rows * cols,
  }),
  adamw: ({ count }) => ({ grad: count, param: count, m: count, v: count }),
  ...viewSizes,
  pool: args => {
    const { image, out } = poolSizes(args)
    return { x: image, y: out, 'indices?': out }
  },
  poolBackward: args => {
    const { image, out } = poolSizes(args)
    return { [args.fn === 'max' ? 'x' : 'x?']: image, dy: out, dx: image }
  },
}

function nvfp4Sizes(rows: number, cols: number): Sizes {
  if (cols % nvfp4Block !== 0) {
    throw new SparkError('ERR_SHAPE', `cols is ${cols}, not a multiple of ${nvfp4Block}`)
  }
  return { packed: (rows * cols) / 2, blockScale: (rows * cols) / nvfp4Block }
}

/** Elements from the first to the last one of an array with these sizes and strides. */
function extent(sizes: readonly number[], strides: MatrixStrides): number {
  if (sizes.includes(0)) return 0
  return 1 + sizes.reduce((last, size, i) => last + (size - 1) * strides[i]!, 0)
}

const counts = ['count', 'rows', 'cols', 'tokens', 'rank', 'classes', 'batch', 'planes']

/**
 * Throws unless every array of `args` is there and long enough for its operation.
 * @throws SparkError ERR_ARGUMENT, ERR_SHAPE
 */
export function expectOperands<Op extends KernelOp>(op: Op, args: KernelArgs[Op]): void {
  const given = args as unknown as Readonly<Record<string, unknown>>
  for (const name of counts) if (name in given) expectInteger(name, given[name], 0)
  if ('weight' in given) expectWeight(given.weight as Weight)
  if (op === 'nvfp4Quantize') expectRecipe(args as KernelArgs['nvfp4Quantize'])
  if (op === 'fp8Quantize') for (const name of ['blockRows', 'blockCols']) expectInteger(name, given[name], 1)
  if (op === 'adamw') for (const name of ['step', 'lr']) expectScalar(name, given[name])
  if (isOnViews(op)) expectViews(op, given)
  if (op === 'conv') expectConv(args as KernelArgs['conv'])
  if (op === 'linear') expectLinear(args as KernelArgs['linear'])
  if (plainCompute.has(op)) expectPlainCompute(args as KernelArgs['linearBackward' | 'doraBackward' | 'conv'])
  if (op === 'doraForward') expectDoraForward(args as KernelArgs['doraForward'])
  if (op === 'matmul') expectMatmul(args as KernelArgs['matmul'])
  expectArrays('', given, sizes[op](args), arrayTypes(op, given))
  if (op === 'doraMixed') expectMixed(args as KernelArgs['doraMixed'])
}

/** A number, or an array of one. */
function expectScalar(name: string, value: unknown): void {
  if (value instanceof Float64Array && value.length > 0) return
  expectNumber(name, value)
}

function expectArrays(
  prefix: string,
  given: Readonly<Record<string, unknown>>,
  needed: Sizes,
  typeOf: (name: string) => ElementType = () => 'f32',
): void {
  for (const [key, count] of Object.entries(needed)) {
    const name = key.replace('?', '')
    const array = given[name]
    if (array === undefined && key !== name) continue
    if (!ArrayBuffer.isView(array)) throw argumentError(prefix + name, 'a typed array', array)
    expectArrayType(prefix + name, array, typeOf(name))
    const { length } = array as Float32Array
    if (count < 0) throw new SparkError('ERR_SHAPE', `${prefix}${name} would be left at its beginning`)
    if (length < count) {
      expectAttached(prefix + name, array)
      throw new SparkError('ERR_SHAPE', `${prefix}${name} has ${length} elements but ${count} are needed`)
    }
  }
}

function expectRecipe({ recipe = 'modelopt', encodeScale }: KernelArgs['nvfp4Quantize']): void {
  expectOneOf('recipe', recipe, ['modelopt', 'te', 'mse'])
  if (recipe === 'te') expectNumber('encodeScale', encodeScale)
}

function expectLinear({ activation = 'none', compute, weight }: KernelArgs['linear']): void {
  expectOneOf('activation', activation, Object.keys(activations))
  expectCompute(compute, weight)
}

function expectDoraForward({ compute, weight, mask }: KernelArgs['doraForward']): void {
  expectCompute(compute, weight)
  if (compute !== 'nvfp4' || !mask) return
  throw new SparkError('ERR_UNSUPPORTED', 'compute nvfp4 has no dropout: leave the mask out, or use bf16')
}

/** Formats of the weights that products in f16 and nvfp4 are for. */
const computeWeights: Partial<Record<Compute, readonly string[]>> = { f16: ['f16', 'f32'], nvfp4: ['nvfp4'] }

function expectCompute(compute: Compute = 'f32', { format }: Weight): void {
  expectOneOf('compute', compute, ['f32', 'bf16', 'f16', 'nvfp4'])
  const weights = computeWeights[compute]
  if (!weights || weights.includes(format)) return
  const wanted = weights.join(' and ')
  throw new SparkError(
    'ERR_UNSUPPORTED',
    `compute ${compute} is for weights of ${wanted}; this one is ${format}. Use bf16`,
  )
}

/** Gradients and convolutions, which are not formed in NVFP4. */
const plainCompute: ReadonlySet<KernelOp> = new Set([
  ...(['linearBackward', 'doraBackward', 'conv', 'convBackward', 'convTranspose'] as const),
])

function expectPlainCompute({
  compute,
  weight,
}: KernelArgs['linearBackward' | 'doraBackward' | 'conv']): void {
  expectCompute(compute, weight)
  if ((compute as Compute) === 'nvfp4') {
    const why = 'compute nvfp4 is for linear layers, not for gradients and convolutions. Use bf16'
    throw new SparkError('ERR_UNSUPPORTED', why)
  }
}

function expectConv({ activation = 'none' }: KernelArgs['conv']): void {
  expectOneOf('activation', activation, Object.keys(activations))
}

function expectMatmul(args: KernelArgs['matmul']): void {
  expectProductCompute(args.compute)
  for (const name of ['outer', 'inner', 'm', 'n', 'k'] as const) expectInteger(name, args[name], 0)
  for (const name of ['aStrides', 'bStrides', 'yStrides'] as const) {
    const strides = args[name]
    if (!Array.isArray(strides) || strides.length !== 4)
      throw argumentError(name, 'an array of four strides', strides)
    for (const stride of strides) expectInteger(name, stride, 0)
  }
  const { m, n, k, aStrides, bStrides, yStrides } = args
  for (const [name, rows, cols, [, , row, col]] of [
    ['aStrides', m, k, aStrides],
    ['bStrides', k, n, bStrides],
  ] as const) {
    if (rows > 1 && cols > 1 && row !== 1 && col !== 1) {
      throw new SparkError(
        'ERR_SHAPE',
        `${name} has neither adjacent rows nor adjacent columns: ${row} and ${col}`,
      )
    }
  }
  if (yStrides[3] !== 1) throw new SparkError('ERR_SHAPE', `yStrides[3] is ${yStrides[3]}, not 1`)
}

function expectWeight(weight: Weight): void {
  const { format, rows, cols, layout = 'rows' } = weight
  expectOneOf('weight.format', format, kernelFormats)
  expectOneOf('weight.layout', layout, ['rows', 'panels'])
  expectInteger('weight.rows', rows, 0)
  expectInteger('weight.cols', cols, 0)
  const record = weight as unknown as Readonly<Record<string, unknown>>
  if (format === 'nvfp4') nvfp4Sizes(rows, cols) // refuses columns that are no multiple of 16
  const sizes = layout === 'panels' ? panelSizes(weight) : weightSizes(format, rows, cols)
  const { scales } = formatInfo(format)
  const needed = {
    data: sizes.data,
    ...(scales === 'block' && { blockScale: sizes.blockScale }),
    ...(scales === 'row' && { rowScale: sizes.rowScale }),
  }
  expectArrays('weight.', record, needed, name => weightArrayType(weight, name))
}

const maxMixedAdapters = 64

function expectMixed({ weight: { rows, cols }, tokens, adapters, index }: KernelArgs['doraMixed']): void {
  if (!Array.isArray(adapters)) throw argumentError('adapters', 'an array', adapters)
  if (adapters.length > maxMixedAdapters) {
    throw argumentError('adapters', `at most ${maxMixedAdapters} adapters`, adapters.length)
  }
  for (const [i, adapter] of adapters.entries()) {
    expectInteger(`adapters[${i}].rank`, adapter.rank, 0)
    const needed = { ...lowRankSizes(adapter.rank, rows, cols), gain: rows }
    expectArrays(`adapters[${i}].`, adapter as unknown as Readonly<Record<string, unknown>>, needed)
  }
  for (let t = 0; t < tokens; t++) {
    if (index[t]! < -1 || index[t]! >= adapters.length) {
      throw new SparkError(
        'ERR_ARGUMENT',
        `index[${t}] is ${index[t]}; there are ${adapters.length} adapters`,
      )
    }
  }
}
