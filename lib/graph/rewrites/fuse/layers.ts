// layers.ts: convolutions and products with constant weights take in what follows them: gate, bias, activation, residual.

import { numel } from '../../../core/shape.js'
import { fixSize, type Size } from '../../../core/size.js'
import { floatOf, int, intOf, string, stringOf } from '../../attributes.js'
import { Constant } from '../../constant.js'
import { type Attributes, makeNode, type Node, sparkDomain } from '../../graph.js'
import { type Fusion, type GraphView, pairs, sameShape } from './pattern.js'

/** Activations of a fused layer by operator. */
const activations: Readonly<Record<string, string>> = {
  Relu: 'relu',
  Sigmoid: 'sigmoid',
  Tanh: 'tanh',
  HardSwish: 'hard_swish',
}

function activationOf(node: Node, view: GraphView): string | undefined {
  if (node.domain !== '') return undefined
  if (node.op === 'Clip')
    return view.isScalar(node.inputs[1], 0) && view.isScalar(node.inputs[2], 6) ? 'relu6' : undefined
  if (node.op === 'Gelu') return stringOf(node, 'approximate') === 'tanh' ? 'gelu_tanh' : 'gelu'
  if (node.op === 'Swish') return floatOf(node, 'alpha') === 1 ? 'silu' : undefined
  return Object.hasOwn(activations, node.op) ? activations[node.op] : undefined
}

const fused = (op: string, inputs: readonly string[], of: Node, attributes: Attributes): Node =>
  makeNode(op, inputs, of.outputs, { domain: sparkDomain, name: of.name, attributes })

/** The layer that makes a value: a convolution, or what {@link fuseLinear} made of a product. */
const layerOf = (view: GraphView, name: string | undefined): Node | undefined =>
  view.producer(name, 'Conv') ?? view.fused(name, 'FusedConv') ?? view.fused(name, 'FusedLinear')

const fusedOp = ({ op }: Node): string => (op === 'Conv' ? 'FusedConv' : op)
const input = (node: Node, i: number): string => node.inputs[i] ?? ''

/** The inputs of a layer with another one at an index. */
const withInput = ({ inputs }: Node, at: number, name: string): string[] =>
  Array.from({ length: Math.max(inputs.length, at + 1) }, (_, i) => (i === at ? name : (inputs[i] ?? '')))

/** A product with a constant matrix → x, W, bias → `FusedLinear`. */
export function fuseLinear(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || (node.op !== 'MatMul' && node.op !== 'Gemm')) return undefined
  const [x = '', w = '', c = ''] = node.inputs
  if (!view.isConstant(w) || view.shape(w)?.length !== 2 || (view.shape(x)?.length ?? 0) < 2) return undefined
  const transB = int(intOf(node, 'transB'))
  const plain = ['alpha', 'beta'].every(name => floatOf(node, name) === 1) && intOf(node, 'transA') === 0
  if (!plain || (c !== '' && !isBias(view, c, view.shape(node.outputs[0])?.at(-1)))) return undefined
  return { nodes: [fused('FusedLinear', [x, w, c], node, { transB })], absorbed: [] }
}

/** Whether a value is a constant of `features` elements along the last axis. */
function isBias(view: GraphView, name: string, features: Size | undefined): boolean {
  const shape = view.shape(name)
  return (
    view.isConstant(name) && shape !== undefined && numel(shape) === features && shape.at(-1) === features
  )
}

/** layer → activation */
export function fuseActivation(node: Node, view: GraphView): Fusion | undefined {
  const activation = activationOf(node, view)
  const layer = activation === undefined ? undefined : layerOf(view, node.inputs[0])
  if (!layer || activation === undefined || stringOf(layer, 'activation') !== 'none') return undefined
  // A linear layer adds its residual after the activation.
  if (input(layer, 3) !== '' && (layer.op !== 'FusedConv' || intOf(layer, 'residual_first') === 0))
    return undefined
  const attributes = { ...layer.attributes, activation: string(activation) }
  return { nodes: [fused(fusedOp(layer), layer.inputs, node, attributes)], absorbed: [layer] }
}

/** product ∘ value of the same shape */
export function fuseGate(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || node.op !== 'Mul') return undefined
  for (const [from, other] of pairs(node)) {
    const layer = view.fused(from, 'FusedLinear')
    if (!layer || other === from || !sameShape(view.shape(from), view.shape(other))) continue
    const isPlain = [2, 3, 4].every(i => input(layer, i) === '') && stringOf(layer, 'activation') === 'none'
    if (!isPlain) continue
    const next = fused(layer.op, withInput(layer, 4, other), node, layer.attributes)
    const fusion = { nodes: [next], absorbed: [layer] }
    if (view.allows(node, fusion)) return fusion
  }
  return undefined
}

/** layer + bias, layer + value of the same shape */
export function fuseAdd(node: Node, view: GraphView): Fusion | undefined {
  const isAdd = node.op === 'Add' || (node.op === 'Sum' && node.inputs.length === 2)
  if (node.domain !== '' || !isAdd) return undefined
  for (const [from, other] of pairs(node)) {
    const layer = layerOf(view, from)
    if (!layer || other === from || input(layer, 3) !== '') continue
    const fusion = addBias(node, layer, other, view) ?? addResidual(node, layer, from, other, view)
    if (fusion && view.allows(node, fusion)) return fusion
  }
  return undefined
}

function addBias(node: Node, layer: Node, bias: string, view: GraphView): Fusion | undefined {
  const active = stringOf(layer, 'activation') !== 'none'
  if (active || input(layer, 2) !== '') return undefined
  const shape = view.shape(layer.outputs[0])
  if (layer.op === 'FusedLinear') {
    if (!isBias(view, bias, shape?.at(-1))) return undefined
    const next = fused(layer.op, withInput(layer, 2, bias), node, layer.attributes)
    return { nodes: [next], absorbed: [layer] }
  }
  const given = view.shape(bias)
  const channels = view.shape(layer.inputs[1])?.[0]
  const perChannel = shape && given && given.at(1 - shape.length) === channels && numel(given) === channels
  if (!perChannel || !view.isConstant(bias)) return undefined
  const [flat, size] = [view.fresh(`${bias}/flat`), view.fresh(`${bias}/size`)]
  view.define(size, Constant.i64([fixSize(channels!)]))
  const reshape = makeNode('Reshape', [bias, size], [flat])
  const inputs = [input(layer, 0), input(layer, 1), flat]
  return { nodes: [reshape, fused(fusedOp(layer), inputs, node, layer.attributes)], absorbed: [layer] }
}

function addResidual(
  node: Node,
  layer: Node,
  from: string,
  other: string,
  view: GraphView,
): Fusion | undefined {
  if (!sameShape(view.shape(from), view.shape(other))) return undefined
  const active = stringOf(layer, 'activation') !== 'none'
  const attributes = layer.op === 'FusedLinear' || active ? {} : { residual_first: int(1) }
  const inputs = withInput(layer, 3, other)
  const next = fused(fusedOp(layer), inputs, node, { ...layer.attributes, ...attributes })
  return { nodes: [next], absorbed: [layer] }
}
