// rescale-biases.ts: requantization of int32 biases after the scale of their weight has changed.
import { roundHalfEven } from '../../core/rounding.js'
import { int } from '../../graph/attributes.js'
import { Constant } from '../../graph/constant.js'
import { freshNames, producersOf } from '../../graph/edit.js'
import { type Graph, makeNode, type Node } from '../../graph/graph.js'
import { removeDead } from '../../graph/rewrites/remove-dead.js'
import type { WeightPattern } from '../../graph/weight-pattern.js'

/** The old and the new scale of a weight, per tensor or per output channel. */
interface Scales {
  readonly before: Constant
  readonly after: Constant
}

/**
 * Requantizes the biases of the layers that read `weight`. The scale of an int32 bias is the scale of the input times
 * that of the weight; only with the new one can the layer be computed on int8 operands. The rounding error, half a unit,
 * is far below the quantization step of the output. Biases that would overflow int32 are left as they are.
 *
 * @param old - the graph with the old scale of the weight
 * @param graph - the graph with the new scale
 * @param weight - name of the weight's value
 */
export function rescaleBiases(
  old: Graph,
  graph: Graph,
  weight: string,
  { format, block, constants }: WeightPattern,
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

/** New codes and units of a bias; undefined unless its units are those of the old scale. */
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
