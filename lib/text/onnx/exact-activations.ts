// exact-activations.ts: products of quantized weights with activations as they are. Dynamic quantization takes one scale for all
// rows of a step, so that tokens of a sequence would depend on the other ones in the batch.
import { producersOf } from '../../graph/edit.js'
import { type Graph, makeNode } from '../../graph/graph.js'
import { dequantizeLayers } from '../../graph/rewrites/dequantize-layers.js'
import { removeDead } from '../../graph/rewrites/remove-dead.js'

/** The canonical graph without dynamic quantization, as far as what is quantized is read as numbers. */
export function exactActivations(graph: Graph): Graph {
  if (!graph.nodes.some(({ op }) => op === 'DynamicQuantizeLinear')) return graph
  const layers = dequantizeLayers(graph)
  const producers = producersOf(layers)
  const nodes = layers.nodes.map(node => {
    const source = producers.get(node.inputs[0] ?? '')
    if (node.op !== 'DequantizeLinear' || source?.op !== 'DynamicQuantizeLinear') return node
    return makeNode('Identity', [source.inputs[0]!], node.outputs, { name: node.name })
  })
  return removeDead({ ...layers, nodes })
}
