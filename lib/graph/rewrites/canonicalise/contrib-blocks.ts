// contrib-blocks.ts: contributed operators on weights in blocks that share scales. Weights become codes that DequantizeLinear
// reads, and the rest the standard operator in f32; where kernels read such blocks, `readCodes` keeps them as they are.
import { numel } from '../../../core/shape.js'
import {
  bytesOfNibbles,
  type IntegerMatrix,
  weightOfGroups,
  weightOfIntegers,
} from '../../../weights/integer-matrix.js'
import { isOrdered } from '../../../weights/ordered-weight.js'
import { int, intOf } from '../../attributes.js'
import { Constant } from '../../constant.js'
import { makeNode, type Node } from '../../graph.js'
import { NodeBuilder } from '../../node-builder.js'
import { unpackedData } from '../../packed.js'
import { weightConstant } from '../../weight-constant.js'
import { codesConstant, constantCodes, expectBytes, reinterpret, unpadded } from './block-codes.js'
import type { Upgrade, UpgradeContext } from './context.js'
import { floatConstant, giveHalf, halfType, widened } from './wide.js'

/** y = x · Wᵀ + bias in f32, cast to the type of x; W is the value `rows`, [out features, in features]. */
function product(
  build: NodeBuilder,
  node: Node,
  context: UpgradeContext,
  [x, rows, bias]: readonly [string, string, string],
): readonly Node[] {
  const columns = build.fresh(`${node.inputs[1]}_columns`)
  build.append(makeNode('Transpose', [rows], [columns]))
  return productOfColumns(build, node, context, [x, columns, bias])
}

/** The same of the value `columns`, [in features, out features]. */
function productOfColumns(
  build: NodeBuilder,
  node: Node,
  context: UpgradeContext,
  [x, columns, bias]: readonly [string, string, string],
): readonly Node[] {
  const [[input = ''], [output = '']] = [node.inputs, node.outputs]
  const half = halfType(context, input)
  const multiplied = half || bias !== '' ? build.fresh(`${output}_product`) : output
  build.append(makeNode('MatMul', [widened(build, context, x), columns], [multiplied], { name: node.name }))
  const sum = bias !== '' && half ? build.fresh(`${output}_sum`) : output
  if (bias !== '') build.append(makeNode('Add', [multiplied, widened(build, context, bias)], [sum]))
  if (half) giveHalf(build, bias === '' ? multiplied : sum, node, half)
  return build.nodes
}

/** Adds the floats of codes in blocks along an axis; gives their name, which begins with `base`. */
export function dequantize(
  build: NodeBuilder,
  base: string,
  [codes, scales, zeros]: readonly [codes: string, scales: string, zeros: string],
  along: { readonly axis: number; readonly block: number },
): string {
  const floats = build.fresh(base)
  const inputs = [codes, scales, ...(zeros === '' ? [] : [zeros])]
  const attributes = { axis: int(along.axis), block_size: int(along.block) }
  build.append(makeNode('DequantizeLinear', inputs, [floats], { attributes }))
  return floats
}

/** The sizes of a weight of MatMulNBits. */
interface NBits {
  readonly n: number
  readonly k: number
  readonly bits: number
  readonly block: number
  /** Blocks of an out feature. */
  readonly blocks: number
}

function nBitsSizes(node: Node, context: UpgradeContext): NBits {
  const [n, k] = [intOf(node, 'N'), intOf(node, 'K')]
  const [bits, block] = [intOf(node, 'bits'), intOf(node, 'block_size')]
  if (Math.min(n, k) < 1 || block < 16)
    throw context.unsupported(node, `N ${n}, K ${k} and block_size ${block} are not those of a weight`)
  if (bits !== 2 && bits !== 4 && bits !== 8)
    throw context.unsupported(node, `weights of ${bits} bits are not supported: 2, 4 or 8`)
  if (intOf(node, 'weight_prepacked') !== 0)
    throw context.unsupported(node, 'weight_prepacked is a layout of one processor: export it with 0')
  return { n, k, bits, block, blocks: Math.ceil(k / block) }
}

/** The block of each in feature; undefined where they are neighbours. */
function blockOfFeatures(
  node: Node,
  context: UpgradeContext,
  name: string,
  { k, block, blocks }: NBits,
): Int32Array | undefined {
  if (name === '') return undefined
  const order = context.constantOf(name)
  if (order?.dtype !== 'i32' || order.count < k) throw context.unsupported(node, 'g_idx must be constant')
  const list = (order.data as Int32Array).subarray(0, k)
  if (list.some(index => index < 0 || index >= blocks))
    throw context.unsupported(node, `g_idx has blocks beyond ${blocks}`)
  return list.every((index, i) => index === Math.floor(i / block)) ? undefined : list
}

/** Zero points [N, blocks] as codes; as f32 where they are no codes. */
function nBitsZeros(node: Node, context: UpgradeContext, name: string, sizes: NBits): Constant {
  const { n, bits, blocks } = sizes
  const shape = [n, blocks]
  if (name === '') return constantCodes(bits, 2 ** (bits - 1), shape)
  if (context.constantOf(name)?.dtype === 'u8') {
    const bytes = n * Math.ceil((blocks * bits) / 8)
    return unpadded(expectBytes(node, context, name, 'zero points', bytes), bits, shape)
  }
  const floats = floatConstant(node, context, name, shape, 'zero points')
  const values = floats.data as Float32Array
  const most = bits === 8 ? 255 : 15
  const areCodes = values.every(value => Number.isInteger(value) && value >= 0 && value <= most)
  return areCodes ? codesConstant(bits, Uint8Array.from(values), shape) : floats
}

/** [K, N] of (code − zero) · scale, in blocks where kernels read such ones. */
function weightOfNBits(
  { n, k, block, blocks }: NBits,
  parts: { readonly codes: Constant; readonly scale: Constant; readonly zero: Constant },
  blockOf: Int32Array | undefined,
): Constant {
  const { codes, scale, zero } = parts
  const matrix: IntegerMatrix = {
    rows: n,
    cols: k,
    bits: codes.dtype === 'u8' ? 8 : 4,
    codes: codes.dtype === 'u8' ? codes.bytes : bytesOfNibbles(unpackedData(codes) as Uint8Array, n, k),
    scales: scale.data as Float32Array,
    zeros: unpackedData(zero) as Uint8Array | Float32Array,
  }
  const features = blockOf ?? Uint32Array.from({ length: k }, (_, i) => Math.floor(i / block))
  const weight =
    k === blocks * block && !blockOf ? weightOfIntegers(matrix) : weightOfGroups(matrix, features)
  const { weight: kept, order } = isOrdered(weight) ? weight : { weight, order: undefined }
  return weightConstant([k, n], kept, { transposed: true, exact: true, order })
}

/**
 * MatMulNBits: y = x · Wᵀ with W[N, K] in blocks of `block_size` along K. Weights whose features are in blocks of any order
 * (g_idx), or whose zero points are no codes, are constants in blocks of their own.
 */
const matMulNBits: Upgrade = (node, context) => {
  const [x = '', weight = '', scales = '', zeros = '', order = '', bias = ''] = node.inputs
  const build = new NodeBuilder(context.scopeOf(node))
  const sizes = nBitsSizes(node, context)
  const { n, k, bits, block, blocks } = sizes
  const packed = expectBytes(node, context, weight, 'codes', (n * blocks * block * bits) / 8)
  const scale = floatConstant(node, context, scales, [n, blocks], 'scales')
  const blockOf = blockOfFeatures(node, context, order, sizes)
  const zero = nBitsZeros(node, context, zeros, sizes)
  const codes = unpadded(packed, bits, [n, k])
  if (blockOf || zero.dtype === 'f32') {
    const constant = weightOfNBits(sizes, { codes, scale, zero }, blockOf)
    const columns = build.constant(constant, `${weight}_columns`)
    return productOfColumns(build, node, context, [x, columns, bias])
  }
  const names = [
    build.constant(codes, `${weight}_codes`),
    build.constant(scale, `${scales}_blocks`),
    build.constant(zero, `${node.outputs[0]}_zeros`),
  ] as const
  const rows = dequantize(build, `${weight}_rows`, names, { axis: 1, block })
  return product(build, node, context, [x, rows, bias])
}

/**
 * GatherBlockQuantized: rows of a table whose numbers share scales in blocks along `quantize_axis`. Bytes may hold several
 * numbers, which are then those of a constant, along the last axis.
 */
const gatherBlockQuantized: Upgrade = (node, context) => {
  const [data = '', indices = '', scales = '', zeros = ''] = node.inputs
  const rank = context.rank(node, data)
  const [bits, block, quantized] = [
    intOf(node, 'bits'),
    intOf(node, 'block_size'),
    intOf(node, 'quantize_axis'),
  ]
  if ((bits !== 2 && bits !== 4 && bits !== 8) || block < 1)
    throw context.unsupported(node, `numbers of ${bits} bits in blocks of ${block} are not supported`)
  const build = new NodeBuilder(context.scopeOf(node))
  const isBytes = context.dtype(data) === 'u8'
  const isPacked = isBytes && bits < 8
  const constant = context.constantOf(data)
  if (isPacked && !constant?.shape.length)
    throw context.unsupported(node, `numbers of ${bits} bits in bytes must be constant`)
  const codes = isPacked ? build.constant(apart(constant!, bits), `${data}_codes`) : data
  const half = halfType(context, scales)
  const scale = context.constantOf(scales)
  const isNew = half !== undefined && scale !== undefined
  const wide = isNew
    ? build.constant(floatConstant(node, context, scales, scale.shape, 'scales'), `${scales}_blocks`)
    : scales
  const zero = isBytes ? build.constant(tableZeros(node, context, [scales, zeros], bits)) : zeros
  const axis = quantized < 0 ? quantized + rank : quantized
  const table = dequantize(build, `${data}_table`, [codes, wide, zero], { axis, block })
  const gathered = isNew ? build.fresh(`${node.outputs[0]}_rows`) : node.outputs[0]!
  const attributes = { axis: int(intOf(node, 'gather_axis')) }
  build.append(makeNode('Gather', [table, indices], [gathered], { name: node.name, attributes }))
  if (isNew) giveHalf(build, gathered, node, half)
  return build.nodes
}

/** Bytes of several codes as codes. */
function apart(packed: Constant, bits: number): Constant {
  const { shape } = packed
  return unpadded(packed, bits, [...shape.slice(0, -1), (8 / bits) * shape.at(-1)!])
}

/** Zero points of bytes, of which a row may have some too many; the middle where there are none. */
function tableZeros(
  node: Node,
  context: UpgradeContext,
  [scales, zeros]: readonly [string, string],
  bits: number,
): Constant {
  const shape = context.constantOf(scales)?.shape
  if (!shape?.length) throw context.unsupported(node, 'its scales must be constant')
  if (zeros === '') return constantCodes(bits, 2 ** (bits - 1), shape)
  const rows = numel(shape.slice(0, -1))
  const bytes = rows * Math.ceil((shape.at(-1)! * bits) / 8)
  return unpadded(expectBytes(node, context, zeros, 'zero points', bytes), bits, shape)
}

/** The sizes of a constant matrix. */
function matrixSizes(node: Node, context: UpgradeContext, name: string): readonly [number, number] {
  const shape = context.constantOf(name)?.shape
  if (shape?.length !== 2) throw context.unsupported(node, 'its weight must be a constant matrix')
  return shape as [number, number]
}

function blockSize(node: Node, context: UpgradeContext): number {
  const block = intOf(node, 'block_size')
  if (block < 1) throw context.unsupported(node, `block_size is ${block}`)
  return block
}

/**
 * MatMulBlockQuantizedFp8Weight: W[N, K] of E4M3 with a scale for each `block_size` neighbours. With a scale of x, x is
 * rounded to E4M3, too.
 */
const matMulFp8: Upgrade = (node, context) => {
  const [x = '', weight = '', scales = '', xScale = '', bias = ''] = node.inputs
  const [n, k] = matrixSizes(node, context, weight)
  const block = blockSize(node, context)
  const build = new NodeBuilder(context.scopeOf(node))
  const scale = floatConstant(node, context, scales, [n, Math.ceil(k / block)], 'scales')
  const names = [weight, build.constant(scale, `${scales}_blocks`), ''] as const
  const rows = dequantize(build, `${weight}_rows`, names, { axis: 1, block })
  if (xScale === '') return product(build, node, context, [x, rows, bias])
  const zero = build.constant(Constant.from('f8_e4m3', [], new Uint8Array(1)))
  const single = build.add('Reshape', [xScale, build.constant(Constant.i64([]))])
  const rounded = build.add('QuantizeLinear', [widened(build, context, x), single, zero])
  return product(build, node, context, [build.add('DequantizeLinear', [rounded, single, zero]), rows, bias])
}

/**
 * MatMulBlockQuantizedFp4Weight: NVFP4, W[N, K] of E2M1, two in a byte, with a scale of E4M3 for each `block_size` neighbours
 * and one of f32 for all. The scale of x is for a product of 4-bit operands; x stays as it is.
 */
const matMulFp4: Upgrade = (node, context) => {
  const [x = '', weight = '', scales = '', global = '', _, bias = ''] = node.inputs
  const [n, half] = matrixSizes(node, context, weight)
  const block = blockSize(node, context)
  const blocks = Math.ceil((2 * half) / block)
  const build = new NodeBuilder(context.scopeOf(node))
  const packed = expectBytes(node, context, weight, 'codes', n * half)
  const scale = expectBytes(node, context, scales, 'scales', n * blocks)
  const single = context.constantOf(global)
  const one = single
    ? build.constant(floatConstant(node, context, global, [], 'scale of all'), global)
    : build.add('Reshape', [global, build.constant(Constant.i64([]))])
  const perBlock = build.add('DequantizeLinear', [
    build.constant(reinterpret(scale, 'f8_e4m3', [n, blocks]), `${scales}_blocks`),
    one,
  ])
  const codes = build.constant(reinterpret(packed, 'f4', [n, 2 * half]), `${weight}_codes`)
  const rows = dequantize(build, `${weight}_rows`, [codes, perBlock, ''], { axis: 1, block })
  return product(build, node, context, [x, rows, bias])
}

/** Upgrades by operator. */
export const contribBlocks: Readonly<Record<string, Upgrade>> = {
  MatMulNBits: matMulNBits,
  GatherBlockQuantized: gatherBlockQuantized,
  MatMulBlockQuantizedFp8Weight: matMulFp8,
  MatMulBlockQuantizedFp4Weight: matMulFp4,
}
