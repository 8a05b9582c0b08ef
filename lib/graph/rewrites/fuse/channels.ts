// channels.ts: weights and bias of a convolution take in what a constant for each channel does behind it.
import { numel } from '../../../core/shape.js'
import { fixSize, fixSizes } from '../../../core/size.js'
import { floatOf, intOf } from '../../attributes.js'
import { makeNode, type Node } from '../../graph.js'
import { NodeBuilder } from '../../node-builder.js'
import { type Fusion, type GraphView, pairs } from './pattern.js'

/** A convolution whose weights are constants, and the sizes of these. */
interface ConstantConv {
  readonly conv: Node
  readonly weight: readonly number[]
}

function constantConv(name: string | undefined, view: GraphView): ConstantConv | undefined {
  const conv = view.producer(name, 'Conv')
  const weight = view.shape(conv?.inputs[1])
  const constants = conv?.inputs.slice(1).filter(input => input !== '') ?? []
  if (!conv || !weight || !constants.every(input => view.isConstant(input))) return undefined
  return { conv, weight: fixSizes(weight) }
}

/** Builds nodes that read constants only, and the convolution that takes the place of `node`. */
class ConvBuilder {
  readonly #build: NodeBuilder
  readonly #view: GraphView
  readonly #of: ConstantConv

  constructor(node: Node, of: ConstantConv, view: GraphView) {
    this.#view = view
    this.#of = of
    this.#build = new NodeBuilder({
      fresh: view.fresh,
      define: (name, value) => view.define(name, value),
      base: op => `${node.outputs[0]}/${op}`,
    })
  }

  made(op: string, ...inputs: readonly string[]): string {
    return this.#build.add(op, inputs)
  }

  constant(value: number): string {
    return this.#build.constant(value)
  }

  /** A constant of one element for each channel, or of one for all, in the form of the weights, or as a vector. */
  shaped(constant: string, as: 'weights' | 'vector'): string {
    const count = numel(fixSizes(this.#view.shape(constant) ?? [this.#of.weight[0]!]))
    const ones = as === 'weights' ? this.#of.weight.slice(1).map(() => 1) : []
    return this.made('Reshape', constant, this.#build.constant([count, ...ones]))
  }

  fusion(node: Node, weight: string, bias: string): Fusion {
    const { conv } = this.#of
    const inputs = bias === '' ? [conv.inputs[0]!, weight] : [conv.inputs[0]!, weight, bias]
    this.#build.append(
      makeNode('Conv', inputs, node.outputs, { name: conv.name, attributes: conv.attributes }),
    )
    return { nodes: this.#build.nodes, absorbed: [conv] }
  }
}

/**
 * Convolution → batch normalization with constant statistics: W′ = W · g and b′ = (b − mean) · g + beta with
 * g = gamma / √(variance + epsilon). Nodes that read constants only compute them.
 */
export function fuseBatchNorm(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || node.op !== 'BatchNormalization') return undefined
  const found = constantConv(node.inputs[0], view)
  const training = intOf(node, 'training_mode') !== 0 || node.outputs.length > 1
  if (!found || training || !node.inputs.slice(1).every(name => view.isConstant(name))) return undefined
  const build = new ConvBuilder(node, found, view)
  const [, gamma = '', beta = '', mean = '', variance = ''] = node.inputs
  const [, w = '', b = ''] = found.conv.inputs
  const epsilon = build.constant(floatOf(node, 'epsilon'))
  const gain = build.made('Div', gamma, build.made('Sqrt', build.made('Add', variance, epsilon)))
  const moved = b === '' ? build.made('Neg', mean) : build.made('Sub', b, mean)
  const bias = build.made('Add', build.made('Mul', moved, gain), beta)
  return build.fusion(node, build.made('Mul', w, build.shaped(gain, 'weights')), bias)
}

/**
 * Convolution → Mul, Div, Add or Sub with a constant for each channel or for all, as exporters write a batch normalization
 * out: W′ = W · g and b′ = b · g, or b′ = b + c.
 */
export function fuseChannels(node: Node, view: GraphView): Fusion | undefined {
  const { op } = node
  if (node.domain !== '' || !['Mul', 'Div', 'Add', 'Sub'].includes(op)) return undefined
  const [left = '', right = ''] = node.inputs
  const orders = op === 'Mul' || op === 'Add' ? pairs(node) : [[left, right] as const]
  for (const [from, constant] of orders) {
    const found = constantConv(from, view)
    // Integers with a scale stay what they are: a layer of integers may become of them.
    if (!found || view.producer(found.conv.inputs[1], 'DequantizeLinear')) continue
    if (!isByChannel(constant, from, found, view)) continue
    const build = new ConvBuilder(node, found, view)
    const [, w = '', b = ''] = found.conv.inputs
    const vector = build.shaped(constant, 'vector')
    if (op === 'Mul' || op === 'Div') {
      const bias = b === '' ? '' : build.made(op, b, vector)
      return build.fusion(node, build.made(op, w, build.shaped(constant, 'weights')), bias)
    }
    // Without a bias an Add is the bias, which the layer takes in as it is.
    if (b !== '') return build.fusion(node, w, build.made(op, b, vector))
  }
  return undefined
}

/** Whether a constant has one element, or one for each channel, and changes nothing of the sizes. */
function isByChannel(name: string, from: string, { weight }: ConstantConv, view: GraphView): boolean {
  const [given, shape] = [view.shape(name), view.shape(from)]
  if (!view.isConstant(name) || !given || !shape || given.length > shape.length) return false
  const count = numel(given)
  return count === 1 || (count === weight[0] && given.at(1 - shape.length) === fixSize(weight[0]!))
}
