// widen-weights.ts: a decoder of 16 bits that computes in f32; its matrices stay in 16 bits.
import { isHalf } from '../../core/dtype.js'
import { intOf } from '../../graph/attributes.js'
import type { Constant } from '../../graph/constant.js'
import { consumersOf, renameReads } from '../../graph/edit.js'
import { type Graph, type Node, tensorType, type ValueInfo } from '../../graph/graph.js'
import { removeDead } from '../../graph/rewrites/remove-dead.js'
import { widenHalves } from '../../graph/rewrites/widen.js'
import { FloatTensor } from '../files/model-tensors.js'

/** The canonical graph in f32: inputs, vectors and numbers in between are f32, matrices are read in the format of the file. */
export async function widenDecoder(graph: Graph): Promise<Graph> {
  const wide = widenHalves(graph)
  if (wide === graph) return graph
  const readers = consumersOf(wide)
  const initializers = new Map(wide.initializers)
  const inputs = new Map(wide.inputs.map(info => [info.name, info]))
  const renamed = new Map<string, string>()
  const dropped = new Set<Node>()
  for (const node of wide.nodes) {
    const [from = ''] = node.inputs
    const [to = ''] = node.outputs
    if (node.op !== 'Cast') continue
    const input = inputs.get(from)
    const constant = initializers.get(from)
    if (input?.type?.kind === 'tensor' && isHalf(input.type.dtype)) {
      inputs.set(from, wideInput(input))
      renamed.set(to, from)
    } else if (constant && constant.shape.length <= 2 && isHalf(constant.dtype)) {
      initializers.set(to, await matrix(constant, isTransposed(to, readers.get(to) ?? [])))
    } else continue
    dropped.add(node)
  }
  const nodes = wide.nodes.filter(node => !dropped.has(node))
  return removeDead(renameReads({ ...wide, nodes, initializers, inputs: [...inputs.values()] }, renamed))
}

const wideInput = (info: ValueInfo): ValueInfo => ({
  name: info.name,
  type: {
    ...tensorType('f32'),
    ...(info.type?.kind === 'tensor' && info.type.shape && { shape: info.type.shape }),
  },
})

/** Whether products read a matrix by in features. */
const isTransposed = (name: string, readers: readonly Node[]): boolean =>
  readers.some(({ op, inputs }) => op === 'MatMul' && inputs[1] === name) ||
  readers.some(node => node.op === 'Gemm' && node.inputs[1] === name && intOf(node, 'transB') === 0)

async function matrix(constant: Constant, transposed: boolean): Promise<Constant> {
  const bytes = constant.load ? await constant.load() : constant.bytes
  return FloatTensor.of(constant.shape, constant.dtype as 'f16' | 'bf16', bytes).constant(transposed)
}
