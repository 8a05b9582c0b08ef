// fold-sizes.ts: an exported decoder for a batch of 1: sizes that follow from it become constants.
import { Constant } from '../../graph/constant.js'
import type { Graph, TensorType } from '../../graph/graph.js'
import { type Fact, inferFacts } from '../../graph/shape-inference.js'
import type { DecoderPorts } from './decoder-ports.js'

/** The graph with a batch of 1, and constants in the place of nodes that give sizes which are the same in every run. */
export function foldSizes(graph: Graph, ports: DecoderPorts): Graph {
  const single = withBatchOfOne(graph, ports)
  const facts = inferFacts(single)
  const initializers = new Map(single.initializers)
  const nodes = single.nodes.filter(({ outputs }) => {
    const [name = ''] = outputs
    const constant = outputs.length === 1 ? knownConstant(facts.get(name)) : undefined
    if (!constant) return true
    initializers.set(name, constant)
    return false
  })
  return { ...single, nodes, initializers }
}

function withBatchOfOne(graph: Graph, { ids, mask, positions, layers }: DecoderPorts): Graph {
  const shapes = new Map<string, TensorType['shape']>([[ids.name, [1, 'tokens']]])
  if (mask) shapes.set(mask.name, [1, 'total'])
  if (positions) shapes.set(positions.name, [1, 'tokens'])
  for (const { keys, values, kvHeads, headSize } of layers) {
    const shape = [...(keys === values ? [2] : []), 1, kvHeads, 'before', headSize]
    for (const name of [keys, values]) shapes.set(name, shape)
  }
  const inputs = graph.inputs.map(info => {
    const shape = shapes.get(info.name)
    return shape && info.type?.kind === 'tensor' ? { ...info, type: { ...info.type, shape } } : info
  })
  return { ...graph, inputs, values: new Map() }
}

/** The integers of a value that is the same in every run. */
function knownConstant({ type, known }: Fact = {}): Constant | undefined {
  if (type?.kind !== 'tensor' || (type.dtype !== 'i64' && type.dtype !== 'i32')) return undefined
  const elements = known?.elements ?? []
  if (!known || elements.length === 0 || !elements.every(Number.isSafeInteger)) return undefined
  const values = elements as readonly number[]
  return type.dtype === 'i64'
    ? Constant.from('i64', known.shape, BigInt64Array.from(values, BigInt))
    : Constant.from('i32', known.shape, Int32Array.from(values))
}
