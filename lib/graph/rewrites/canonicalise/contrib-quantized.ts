// contrib-quantized.ts: contributed operators on quantized tensors, as dequantize, compute, quantize.

import { numel } from '../../../core/shape.js'
import { float, floatOf, int, intOf } from '../../attributes.js'
import { Constant, type NumericType } from '../../constant.js'
import { onnxNumbers } from '../../element-types.js'
import { type Attributes, makeNode, type Node } from '../../graph.js'
import { NodeBuilder } from '../../node-builder.js'
import { type Upgrade, type UpgradeContext, without } from './context.js'
import { byAttribute } from './contrib-channels-last.js'

/** Where the parts of a quantized operand stand among the inputs. */
type Operand = readonly [value: number, scale: number, zeroPoint: number]

/** Dequantizes operands, applies a standard operator in f32, and quantizes its result. */
const throughFloat =
  (
    op: string,
    operands: (node: Node) => readonly Operand[],
    result: (node: Node) => readonly [scale: number, zeroPoint: number],
    attributes: (node: Node) => Attributes = () => ({}),
  ): Upgrade =>
  (node, context) => {
    const input = (i: number): string => node.inputs[i] ?? ''
    const nodes: Node[] = []
    const floats = operands(node).map(([value, scale, zeroPoint]) => {
      const name = context.fresh(`${input(value)}_f32`)
      nodes.push(makeNode('DequantizeLinear', [input(value), input(scale), input(zeroPoint)], [name]))
      return name
    })
    const computed = context.fresh(`${node.outputs[0]}_f32`)
    const [scale, zeroPoint] = result(node)
    return [
      ...nodes,
      makeNode(op, floats, [computed], { name: node.name, attributes: attributes(node) }),
      makeNode('QuantizeLinear', [computed, input(scale), input(zeroPoint)], node.outputs),
    ]
  }

const binary = (op: string): Upgrade =>
  throughFloat(
    op,
    () => [
      [0, 1, 2],
      [3, 4, 5],
    ],
    () => [6, 7],
  )

const unary = (op: string, attributes?: (node: Node) => Attributes): Upgrade =>
  throughFloat(
    op,
    () => [[0, 1, 2]],
    () => [3, 4],
    attributes,
  )

const pool = (op: string): Upgrade =>
  byAttribute(unary(op, node => without(node.attributes, 'channels_last')))

/** Inputs: scale and zero point of the result, then value, scale and zero point of each part. */
const concat = throughFloat(
  'Concat',
  node => Array.from({ length: (node.inputs.length - 2) / 3 }, (_, i) => [2 + 3 * i, 3 + 3 * i, 4 + 3 * i]),
  () => [0, 1],
  node => ({ axis: int(intOf(node, 'axis')) }),
)

/** An integer product as f32: (a - a_zero)(b - b_zero) a_scale b_scale + bias. */
function scaledProduct(
  node: Node,
  context: UpgradeContext,
  operands: readonly string[],
  scales: readonly [string, string],
  bias: string,
): Node[] {
  const [integers, floats, scale] = ['i32', 'f32', 'scale'].map(part =>
    context.fresh(`${node.outputs[0]}_${part}`),
  ) as [string, string, string]
  const scaled = bias === '' ? node.outputs[0]! : context.fresh(`${node.outputs[0]}_scaled`)
  return [
    makeNode('MatMulInteger', operands, [integers], { name: node.name }),
    makeNode('Cast', [integers], [floats], { attributes: { to: int(onnxNumbers.f32) } }),
    makeNode('Mul', scales, [scale]),
    makeNode('Mul', [floats, scale], [scaled]),
    ...(bias === '' ? [] : [makeNode('Add', [scaled, bias], node.outputs)]),
  ]
}

const matMulIntegerToFloat: Upgrade = (node, context) => {
  const [a = '', b = '', aScale = '', bScale = '', aZero = '', bZero = '', bias = ''] = node.inputs
  return scaledProduct(node, context, [a, b, aZero, bZero], [aScale, bScale], bias)
}

const dynamicQuantizeMatMul: Upgrade = (node, context) => {
  const [a = '', b = '', bScale = '', bZero = '', bias = ''] = node.inputs
  const parts = ['u8', 'scale', 'zero'].map(part => context.fresh(`${a}_${part}`)) as [string, string, string]
  return [
    makeNode('DynamicQuantizeLinear', [a], parts),
    ...scaledProduct(node, context, [parts[0], b, parts[2], bZero], [parts[1], bScale], bias),
  ]
}

/**
 * MatMulNBits: y = x · Wᵀ with W[N, K] in blocks of `block_size` along K. The weight becomes a tensor of 4-bit or 8-bit
 * numbers with a scale per block; the bytes stay as they are, because both forms put the first number in the low bits.
 */
const matMulNBits: Upgrade = (node, context) => {
  const [x = '', weight = '', scales = '', zeros = '', order = '', bias = ''] = node.inputs
  const [n, k] = [intOf(node, 'N'), intOf(node, 'K')]
  const [bits, block] = [intOf(node, 'bits'), intOf(node, 'block_size')]
  if (Math.min(n, k) < 1 || block < 16)
    throw context.unsupported(node, `N ${n}, K ${k} and block_size ${block} are not those of a weight`)
  const blocks = Math.ceil(k / block)
  const [packed, scale] = [context.constantOf(weight), context.constantOf(scales)]
  if ((bits !== 4 && bits !== 8) || order !== '' || !packed || !scale || k % block !== 0) {
    throw context.unsupported(
      node,
      'only 4 or 8 bits, constant weights, K in whole blocks and no g_idx are supported',
    )
  }
  if (scale.count !== n * blocks) {
    const wanted = `N ${n} and K ${k} in blocks of ${block} need ${n * blocks} scales`
    throw context.unsupported(node, `${wanted}; there are ${scale.count}, so these are not those of a weight`)
  }
  const dtype = bits === 4 ? 'u4' : 'u8'
  const zeroPoint = zeroPoints(context.constantOf(zeros)?.bytes, n, blocks, bits)
  if (zeros !== '' && context.constantOf(zeros)?.dtype !== 'u8') {
    throw context.unsupported(node, 'zero points must be constant and packed like the weight')
  }
  const output = node.outputs[0]!
  const codes = context.constant(`${weight}_codes`, reinterpret(packed, dtype, [n, k]))
  const perBlock = context.constant(
    `${scales}_blocks`,
    reinterpret(scale, scale.dtype as NumericType, [n, blocks]),
  )
  const zero = context.constant(`${output}_zeros`, Constant.from(dtype, [n, blocks], zeroPoint))
  const [rows, columns] = [context.fresh(`${weight}_rows`), context.fresh(`${weight}_columns`)]
  const product = bias === '' ? output : context.fresh(`${output}_product`)
  return [
    makeNode('DequantizeLinear', [codes, perBlock, zero], [rows], {
      attributes: { axis: int(1), block_size: int(block) },
    }),
    makeNode('Transpose', [rows], [columns]),
    makeNode('MatMul', [x, columns], [product], { name: node.name }),
    ...(bias === '' ? [] : [makeNode('Add', [product, bias], node.outputs)]),
  ]
}

/**
 * GatherBlockQuantized: rows of a table whose numbers share scales in blocks along `quantize_axis`. Bytes may hold two
 * numbers of 4 bits, which are then those of a constant, along the last axis.
 */
const gatherBlockQuantized: Upgrade = (node, context) => {
  const [data = '', indices = '', scales = '', zeros = ''] = node.inputs
  const rank = context.rank(node, data)
  const [gathered, quantized] = [intOf(node, 'gather_axis'), intOf(node, 'quantize_axis')]
  const [bits, block] = [intOf(node, 'bits'), intOf(node, 'block_size')]
  const bytes = context.dtype(data) === 'u8'
  if ((bits !== 4 && bits !== 8) || block < 1)
    throw context.unsupported(node, `numbers of ${bits} bits in blocks of ${block} are not supported`)
  const halves = bytes && bits === 4
  const apart = (name: string): string => {
    const packed = context.constantOf(name)
    const sizes = packed?.shape
    if (!packed || sizes === undefined || sizes.length === 0)
      throw context.unsupported(node, 'numbers of 4 bits in bytes must be constant')
    const shape = [...sizes.slice(0, -1), 2 * sizes.at(-1)!]
    return context.constant(`${name}_codes`, reinterpret(packed, 'u4', shape))
  }
  const codes = halves ? apart(data) : data
  let zero = halves && zeros !== '' ? blocksOf(node, context, zeros, scales) : zeros
  if (zero === '' && bytes) {
    const shape = context.constantOf(scales)?.shape
    if (!shape) throw context.unsupported(node, 'its scales must be constant')
    const middle = new Uint8Array(halves ? Math.ceil(numel(shape) / 2) : numel(shape)).fill(
      halves ? 0x88 : 0x80,
    )
    zero = context.constant(`${node.outputs[0]}_zeros`, Constant.from(halves ? 'u4' : 'u8', shape, middle))
  }
  const table = context.fresh(`${data}_table`)
  const axis = quantized < 0 ? quantized + rank : quantized
  return [
    makeNode('DequantizeLinear', [codes, scales, zero].slice(0, zero === '' ? 2 : 3), [table], {
      attributes: { axis: int(axis), block_size: int(block) },
    }),
    makeNode('Gather', [table, indices], node.outputs, {
      name: node.name,
      attributes: { axis: int(gathered) },
    }),
  ]
}

/** Zero points of 4 bits, two in a byte, of which a row may have one too many. */
function blocksOf(node: Node, context: UpgradeContext, zeros: string, scales: string): string {
  const [packed, scale] = [context.constantOf(zeros), context.constantOf(scales)]
  if (!packed || !scale) throw context.unsupported(node, 'zero points and scales must be constant')
  const blocks = scale.shape.at(-1) ?? 1
  const rows = scale.count / Math.max(1, blocks)
  const codes = Constant.from('u4', scale.shape, zeroPoints(packed.bytes, rows, blocks, 4))
  return context.constant(`${zeros}_codes`, codes)
}

/** The bytes of a constant as elements of another type or shape. */
function reinterpret(constant: Constant, dtype: NumericType, shape: readonly number[]): Constant {
  return Constant.lazy(dtype, shape, { byteLength: constant.byteLength, read: () => constant.bytes })
}

/** Zero points without the padding of rows to whole bytes; 2^(bits - 1) where there are none. */
function zeroPoints(bytes: Uint8Array | undefined, n: number, blocks: number, bits: number): Uint8Array {
  const rowBytes = Math.ceil((blocks * bits) / 8)
  const at = (i: number): number => {
    if (!bytes) return 1 << (bits - 1)
    const [row, column] = [Math.floor(i / blocks), i % blocks]
    if (bits === 8) return bytes[row * rowBytes + column]!
    return (bytes[row * rowBytes + (column >> 1)]! >> (4 * (column & 1))) & 15
  }
  const result = new Uint8Array(Math.ceil((n * blocks * bits) / 8))
  for (let i = 0; i < n * blocks; i++) {
    if (bits === 8) result[i] = at(i)
    else result[i >> 1]! |= at(i) << (4 * (i & 1))
  }
  return result
}

/** Before opset 13, which an attribute names, Softmax worked on a flattened input. */
const softmax: Upgrade = (node, context) => {
  const axis = intOf(node, 'axis')
  const last = axis === -1 || axis === (context.shape(node.inputs[0]!)?.length ?? 0) - 1
  if (!last && intOf(node, 'opset') < 13) throw context.unsupported(node, 'it flattens its input')
  return unary('Softmax', () => ({ axis: int(axis) }))(node, context)
}

/** Gemm on quantized operands, with an i32 bias in units of both scales; without an output scale the result is f32. */
const gemm: Upgrade = (node, context) => {
  const [a = '', aScale = '', aZero = '', b = '', bScale = '', bZero = '', c = '', scale = '', zero = ''] =
    node.inputs
  const build = new NodeBuilder(context.scopeOf(node))
  // A scale for each column of the product, along which the bias lies last.
  const axis = { axis: int(intOf(node, 'transB') ? 0 : 1) }
  const operands = [
    build.add('DequantizeLinear', [a, aScale, aZero]),
    build.add('DequantizeLinear', [b, bScale, bZero], axis),
  ]
  if (c !== '')
    operands.push(build.add('Mul', [build.add('CastLike', [c, aScale]), build.add('Mul', [aScale, bScale])]))
  const product = build.fresh(`${node.outputs[0]}_Gemm`)
  build.append(makeNode('Gemm', operands, [product], { name: node.name, attributes: node.attributes }))
  return [
    ...build.nodes,
    makeNode(
      scale === '' ? 'Identity' : 'QuantizeLinear',
      [product, scale, zero].filter(Boolean),
      node.outputs,
    ),
  ]
}

/** One of two quantized operands, by a condition. */
const where: Upgrade = (node, context) => {
  const [condition = '', ...rest] = node.inputs
  const [x, y, z] = ['x', 'y', 'z'].map(part => context.fresh(`${node.outputs[0]}_${part}`)) as [
    string,
    string,
    string,
  ]
  return [
    makeNode('DequantizeLinear', rest.slice(0, 3), [x]),
    makeNode('DequantizeLinear', rest.slice(3, 6), [y]),
    makeNode('Where', [condition, x, y], [z], { name: node.name }),
    makeNode('QuantizeLinear', [z, ...rest.slice(6)], node.outputs),
  ]
}

/** The same operators as the standard's, for types it had not then. */
const adopted: Upgrade = node => [{ ...node, domain: '' }]

/** Upgrades by operator. */
export const contribQuantized: Readonly<Record<string, Upgrade>> = {
  QLinearAdd: binary('Add'),
  QLinearMul: binary('Mul'),
  QLinearSigmoid: unary('Sigmoid'),
  QLinearLeakyRelu: unary('LeakyRelu', node => ({ alpha: float(floatOf(node, 'alpha')) })),
  QLinearSoftmax: softmax,
  QLinearAveragePool: pool('AveragePool'),
  QLinearGlobalAveragePool: pool('GlobalAveragePool'),
  QLinearConcat: concat,
  QLinearWhere: where,
  QGemm: gemm,
  QuantizeLinear: adopted,
  DequantizeLinear: adopted,
  DynamicQuantizeMatMul: dynamicQuantizeMatMul,
  MatMulIntegerToFloat: matMulIntegerToFloat,
  MatMulNBits: matMulNBits,
  GatherBlockQuantized: gatherBlockQuantized,
}
