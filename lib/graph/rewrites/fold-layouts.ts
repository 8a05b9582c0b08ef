// fold-layouts.ts: weights that get another shape or are transposed before a product reads them.
import { isHalf } from '../../core/dtype.js'
import { atOnce, mapPaced, type Paced } from '../../core/paced.js'
import { transpose } from '../../core/transpose.js'
import { intsOf } from '../attributes.js'
import { Constant, type NumericType } from '../constant.js'
import { consumersOfPaced, producersOfPaced } from '../edit.js'
import { type Graph, type Node, sparkDomain } from '../graph.js'

/** Which input of a node is the weight of a product. */
export function weightInput({ domain, op }: Node): number | undefined {
  if (domain === '' && /^(MatMul|Gemm|Conv|ConvTranspose)$/.test(op)) return 1
  if (domain !== sparkDomain) return undefined
  return op === 'DoRA' ? 1 : op === 'DoRAWeight' ? 0 : undefined
}

/** Operators that give a matrix another shape, or swap its dimensions. */
const layouts = /^(Reshape|Flatten|Squeeze|Unsqueeze|Identity|Transpose)$/

const isLayout = ({ domain, op }: Node): boolean => domain === '' && layouts.test(op)

/**
 * The graph whose products read initializers of floats where they read one through nodes that only change its layout, and
 * nobody else reads it: a weight is then found, adapted and quantized as what the product sees. It keeps its name.
 *
 * @param shapeOf - the shape of a value, where all of its sizes are known
 */
export function foldLayouts(graph: Graph, shapeOf: (name: string) => readonly number[] | undefined): Graph {
  return atOnce(foldLayoutsPaced(graph, shapeOf))
}

/** {@link foldLayouts} with pauses. */
export function* foldLayoutsPaced(
  graph: Graph,
  shapeOf: (name: string) => readonly number[] | undefined,
): Paced<Graph> {
  if (!graph.nodes.some(node => weightInput(node) !== undefined)) return graph
  const [producers, consumers] = [yield* producersOfPaced(graph), yield* consumersOfPaced(graph)]
  const fixed = new Set([...graph.inputs, ...graph.outputs].map(({ name }) => name))
  const isOwn = (name: string): boolean => !fixed.has(name) && consumers.get(name)?.length === 1
  const initializers = new Map(graph.initializers)
  const [renamed, folded] = [new Map<string, string>(), new Set<Node>()]
  for (const node of graph.nodes) {
    yield
    const read = node.inputs[weightInput(node) ?? -1] ?? ''
    const chain: Node[] = []
    let name = read
    for (let at = producers.get(name); at && isLayout(at) && isOwn(name); at = producers.get(name)) {
      chain.push(at)
      name = at.inputs[0] ?? ''
    }
    const weight = initializers.get(name)
    if (chain.length === 0 || !weight || !isOwn(name)) continue
    const value = throughLayouts(weight, chain.reverse(), shapeOf)
    if (!value) continue
    initializers.set(name, value)
    renamed.set(read, name)
    for (const layout of chain) folded.add(layout)
  }
  if (folded.size === 0) return graph
  for (const name of [...folded].flatMap(({ inputs }) => inputs.slice(1))) {
    if (!fixed.has(name) && consumers.get(name)?.every(node => folded.has(node))) initializers.delete(name)
  }
  const left = graph.nodes.filter(node => !folded.has(node))
  const nodes = yield* mapPaced(left, node => ({
    ...node,
    inputs: node.inputs.map(input => renamed.get(input) ?? input),
  }))
  return { ...graph, nodes, initializers }
}

/** A constant of floats behind nodes that change its layout; undefined where one of them does more. */
function throughLayouts(
  weight: Constant,
  chain: readonly Node[],
  shapeOf: (name: string) => readonly number[] | undefined,
): Constant | undefined {
  if (!(isHalf(weight.dtype) || weight.dtype === 'f32') || weight.weight) return undefined
  let value = weight
  for (const node of chain) {
    const shape = shapeOf(node.outputs[0] ?? '')
    if (!shape) return undefined
    if (node.op === 'Transpose' && value.shape.length !== 2) return undefined
    const from = value
    const isSwap = node.op === 'Transpose' && (intsOf(node, 'perm') ?? [1, 0])[0] === 1
    value = Constant.lazy(weight.dtype as NumericType, shape, {
      byteLength: weight.byteLength,
      read: isSwap ? () => transposed(from) : () => from.bytes,
    })
  }
  return value
}

/** The bytes of a matrix with its rows as columns. */
function transposed({ data, shape }: Constant): Uint8Array {
  const { buffer, byteOffset, byteLength } = transpose(data, shape[0]!, shape[1]!)
  return new Uint8Array(buffer, byteOffset, byteLength)
}
