// dequantize-layers.ts: layers of quantized operands as dequantize, compute, quantize, so that their weights are values.
import { int, intOf } from '../attributes.js'
import { Constant, type NumericType } from '../constant.js'
import { consumersOf, producersOf } from '../edit.js'
import { onnxNumbers } from '../element-types.js'
import { type Graph, makeNode, type Node } from '../graph.js'

/** A layer of quantized operands in other words. */
interface Dequantized {
  /** Name of the value that is the weight. */
  readonly weight: string
  /** The nodes that replace the last one of `nodes`. */
  readonly made: readonly Node[]
  /** Nodes of the layer. */
  readonly nodes: readonly Node[]
  /** Constants that were computed. */
  readonly constants?: ReadonlyMap<string, Constant>
}

/**
 * The graph with `QLinearConv`, `QLinearMatMul`, and `ConvInteger` and `MatMulInteger` whose result is cast and scaled,
 * as `DequantizeLinear`, `Conv` or `MatMul`, and `QuantizeLinear`, where their weights are initializers. The results are
 * the same up to the rounding of f32. Weights are called `<output of the layer>/weight`.
 *
 * @param weights - only the layers that have these weights then; without it all of them
 */
export function dequantizeLayers(graph: Graph, weights?: ReadonlySet<string>): Graph {
  const view: View = { graph, producers: producersOf(graph), consumers: consumersOf(graph) }
  const layers = graph.nodes.flatMap(node => {
    const layer = node.domain === '' ? dequantizedLayer(node, view) : undefined
    return layer && (weights?.has(layer.weight) ?? true) ? [layer] : []
  })
  if (layers.length === 0) return graph
  const replacements = new Map(layers.map(({ nodes, made }) => [nodes.at(-1)!, made]))
  const replaced = new Set(layers.flatMap(({ nodes }) => nodes))
  const nodes = graph.nodes.flatMap(node => replacements.get(node) ?? (replaced.has(node) ? [] : [node]))
  const constants = layers.flatMap(layer => [...(layer.constants ?? [])])
  return { ...graph, nodes, initializers: new Map([...graph.initializers, ...constants]) }
}

type Operator = 'Conv' | 'MatMul'

/** A graph and who makes and reads its values. */
interface View {
  readonly graph: Graph
  readonly producers: ReadonlyMap<string, Node>
  readonly consumers: ReadonlyMap<string, readonly Node[]>
}

function dequantizedLayer(node: Node, view: View): Dequantized | undefined {
  switch (node.op) {
    case 'QLinearConv':
      return quantizedLayer(node, view, 'Conv')
    case 'QLinearMatMul':
      return quantizedLayer(node, view, 'MatMul')
    case 'ConvInteger':
      return integerLayer(node, view, 'Conv')
    case 'MatMulInteger':
      return integerLayer(node, view, 'MatMul')
    default:
      return undefined
  }
}

const isOne = (constant: Constant | undefined): boolean => constant?.count === 1

const dequantizeNode = (inputs: readonly string[], output: string, axis?: number): Node =>
  makeNode(
    'DequantizeLinear',
    inputs,
    [output],
    axis === undefined ? {} : { attributes: { axis: int(axis) } },
  )

/** The axis of the scales of a weight: its out features. */
const featureAxis = (op: Operator, { shape }: Constant): number => (op === 'Conv' ? 0 : shape.length - 1)

/** Codes, scales and zero points of a weight as constants that DequantizeLinear takes together. */
interface Codes {
  readonly weight: Constant
  readonly scale: Constant
  readonly zero: Constant | undefined
}

function codesOf({ graph }: View, w: string, scaleName: string, zeroName: string): Codes | undefined {
  const [weight, scale, zero] = [w, scaleName, zeroName].map(name => graph.initializers.get(name))
  const hasZero = zeroName === '' || zero?.count === scale?.count
  return weight && scale?.dtype === 'f32' && weight.shape.length > 1 && hasZero
    ? { weight, scale, zero }
    : undefined
}

/** x, scale, zero, W, scale, zero, scale of y, zero of y, bias → y */
function quantizedLayer(node: Node, view: View, op: Operator): Dequantized | undefined {
  const [x, xScale, xZero, w, wScale, wZero, yScale, yZero, bias] = Array.from(
    { length: 9 },
    (_, i) => node.inputs[i] ?? '',
  ) as [string, string, string, string, string, string, string, string, string]
  const [codes, step] = [codesOf(view, w, wScale, wZero), view.graph.initializers.get(xScale)]
  if (!codes || !step || !isOne(step)) return undefined
  const y = node.outputs[0]!
  const [floats, weight, product] = [`${y}/input`, `${y}/weight`, `${y}/product`]
  const axis = featureAxis(op, codes.weight)
  const made = [dequantizeNode([x, xScale, xZero], floats), dequantizeNode([w, wScale, wZero], weight, axis)]
  const constants = new Map<string, Constant>()
  if (bias !== '') {
    // Its codes count in units of both scales, those of the weight as they are now.
    const factor = Number(step.data[0])
    const units = Array.from(codes.scale.data as Float32Array, scale => factor * scale)
    constants.set(`${y}/bias_scale`, Constant.f32(units, codes.scale.shape))
    made.push(dequantizeNode([bias, `${y}/bias_scale`], `${y}/bias`, 0))
  }
  const operands = [floats, weight, ...(bias === '' ? [] : [`${y}/bias`])]
  made.push(makeNode(op, operands, [product], { name: node.name, attributes: node.attributes }))
  made.push(makeNode('QuantizeLinear', [product, yScale, yZero], [y]))
  return { weight, nodes: [node], made, constants }
}

/** x, W, zero, zero → Cast to f32 → times the product of the scales of x and W */
function integerLayer(node: Node, view: View, op: Operator): Dequantized | undefined {
  const { graph, producers } = view
  const [x = '', w = '', xZero = '', wZero = ''] = node.inputs
  const cast = onlyReader(view, node.outputs[0]!, 'Cast')
  const scaled = cast && onlyReader(view, cast.outputs[0]!, 'Mul')
  const scales = producers.get(scaled?.inputs.find(name => name !== cast!.outputs[0]) ?? '')
  if (!scaled || scales?.op !== 'Mul' || intOf(cast!, 'to') !== onnxNumbers.f32) return undefined
  const xScale = scales.inputs.find(name => producers.get(x)?.outputs[1] === name) ?? scales.inputs[0]!
  const codes = codesOf(view, w, scales.inputs.find(name => name !== xScale) ?? '', wZero)
  const isSingle = producers.get(x)?.op === 'DynamicQuantizeLinear' || isOne(graph.initializers.get(xScale))
  if (!codes || !isSingle) return undefined
  const axis = featureAxis(op, codes.weight)
  // Scales of the features of a convolution broadcast over positions, [C, 1, …]; those of a product are its last axis.
  const { count, shape } = codes.scale
  const features = op === 'Conv' ? shape.at(1 - codes.weight.shape.length) : shape.at(-1)
  if (count !== 1 && (count !== codes.weight.shape[axis] || features !== count)) return undefined
  const y = scaled.outputs[0]!
  const [floats, weight, scale, zero] = ['input', 'weight', 'weight_scale', 'weight_zero'].map(
    part => `${y}/${part}`,
  ) as [string, string, string, string]
  const sizes = count === 1 ? [] : [count]
  const constants = new Map([[scale, withShape(codes.scale, sizes)]])
  if (codes.zero) constants.set(zero, withShape(codes.zero, sizes))
  const made = [
    dequantizeNode([x, xScale, xZero], floats),
    dequantizeNode([w, scale, codes.zero ? zero : ''], weight, axis),
    makeNode(op, [floats, weight], [y], { name: node.name, attributes: node.attributes }),
  ]
  return { weight, nodes: [node, cast!, scaled], made, constants }
}

/** The node that reads a value, where it is the only one and an `op`. */
function onlyReader({ graph, consumers }: View, name: string, op: string): Node | undefined {
  const [reader, ...others] = consumers.get(name) ?? []
  const isOutput = graph.outputs.some(output => output.name === name)
  return reader?.op === op && reader.domain === '' && others.length === 0 && !isOutput ? reader : undefined
}

const withShape = ({ dtype, data }: Constant, shape: readonly number[]): Constant =>
  Constant.from(dtype as NumericType, shape, data)
