// bias-units.ts: biases of quantized layers, whose codes count in units of the scales of the input and of the weight.
import { roundHalfEven } from '../../core/rounding.js'
import { int } from '../../graph/attributes.js'
import { Constant } from '../../graph/constant.js'
import { freshNames, producersOf } from '../../graph/edit.js'
import { type Graph, makeNode, type Node } from '../../graph/graph.js'
import type { QuantizedWeight } from '../../graph/quantized-weight.js'
import { removeDead } from '../../graph/rewrites/remove-dead.js'

/** The scale of a weight, one for all or one for each out feature: as it was, and as it is. */
interface Scales {
  readonly before: Constant
  readonly after: Constant
}

/**
 * The graph whose layers have a bias in units of the new scale of their weight where it was in those of the old one:
 * otherwise nobody could compute them with codes. A bias is rounded to half a unit, far below the step of what the layer
 * makes; one that 32 bits cannot hold then stays as it is.
 *
 * @param old - the graph with the old scale
 * @param graph - with the new one
 * @param weight - name of the value that is the weight
 */
export function rescaleBiases(
  old: Graph,
  graph: Graph,
  weight: string,
  { format, block, constants }: QuantizedWeight,
): Graph {
  const [before, after] = [old, graph].map(({ initializers }) => initializers.get(constants[1] ?? ''))
  if (format !== 'scaled' || block !== 0 || before?.dtype !== 'f32' || !after) return graph
  const producers = producersOf(graph)
  const fresh = freshNames(graph)
  const initializers = new Map(graph.initializers)
  const nodes = graph.nodes.flatMap(node => {
    if (node.domain !== '' || !/^(Conv|Gemm)$/.test(node.op) || node.inputs[1] !== weight) return [node]
    const [input, bias] = [node.inputs[0], node.inputs[2]].map(name => producers.get(name ?? ''))
    const rescaled = bias && rescale(graph, input, bias, { before, after })
    if (!rescaled) return [node]
    const [codes, units, value] = ['codes', 'units', 'bias'].map(part => fresh(`${node.outputs[0]}/${part}`))
    initializers.set(codes!, rescaled.codes).set(units!, rescaled.units)
    const dequantize = makeNode('DequantizeLinear', [codes!, units!], [value!], {
      attributes: { axis: int(0) },
    })
    return [dequantize, { ...node, inputs: node.inputs.with(2, value!) }]
  })
  return nodes.length === graph.nodes.length ? graph : removeDead({ ...graph, nodes, initializers })
}

/** Codes and units of a bias; undefined where it is no bias in units of the old scale. */
function rescale(
  { initializers }: Graph,
  input: Node | undefined,
  bias: Node,
  { before, after }: Scales,
): { codes: Constant; units: Constant } | undefined {
  if (input?.op !== 'DequantizeLinear' || bias.op !== 'DequantizeLinear') return undefined
  const [codes, units, zero] = bias.inputs.map(name => initializers.get(name))
  const step = initializers.get(input.inputs[1] ?? '')
  if (codes?.dtype !== 'i32' || units?.dtype !== 'f32' || step?.dtype !== 'f32' || step.count !== 1)
    return undefined
  if (![1, codes.count].includes(before.count) || zero?.bytes.some(byte => byte !== 0)) return undefined
  const at = ({ count, data }: Constant, i: number): number => Number(data[count === 1 ? 0 : i])
  const factor = at(step, 0)
  const numbers = Array.from({ length: codes.count }, (_, i) => at(codes, i) * at(units, i))
  const isUnit = (_: number, i: number): boolean =>
    Math.abs(at(units, i) - factor * at(before, i)) <= 1e-6 * at(units, i)
  if (!numbers.every(isUnit)) return undefined
  const next = Constant.f32(
    Array.from({ length: after.count }, (_, i) => factor * at(after, i)),
    after.shape,
  )
  const rounded = numbers.map((number, i) => roundHalfEven(number / at(next, i)))
  if (rounded.some(code => Math.abs(code) > 2 ** 31 - 1)) return undefined
  return { codes: Constant.from('i32', codes.shape, Int32Array.from(rounded)), units: next }
}
