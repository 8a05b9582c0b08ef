// contrib-quantized.ts: contributed operators on quantized tensors, as dequantize, compute, quantize.

import { float, floatOf, int, intOf } from '../../attributes.js'
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
}
