// modules.ts: the layers of a graph that can have an adapter, with the names that PEFT would give them.
import { isHalf } from '../../core/dtype.js'
import { numel } from '../../core/shape.js'
import { intOf } from '../../graph/attributes.js'
import { consumersOf } from '../../graph/edit.js'
import type { Graph, Node } from '../../graph/graph.js'
import { type QuantizedWeight, quantizedWeights } from '../../graph/quantized-weight.js'
import { dequantizeLayers } from '../../graph/rewrites/dequantize-layers.js'
import type { NamedModule } from '../peft/matching.js'

/** A layer that can have an adapter. */
export interface GraphModule extends NamedModule {
  /** Name of its weight: an initializer, or a value that nodes make of `quantized`. */
  readonly weight: string
  /** What the weight is made of where it is no initializer. */
  readonly quantized?: QuantizedWeight
  /** Shape of the weight. */
  readonly shape: readonly number[]
  /** Element type of the weight. */
  readonly dtype: 'f32' | 'f16' | 'bf16'
  /** Out features: [out, in], or [out, in / groups, ...kernel]; in columns when the weight is [in, out]. */
  readonly rows: number
  /** Elements of a row. */
  readonly cols: number
  /** Whether the weight lies [in, out]; embeddings do, their vocabulary counting as in features. */
  readonly inColumns: boolean
}

/**
 * The layers of a canonical graph that can have an adapter: `MatMul`, `Gemm`, one- and two-dimensional `Conv` and
 * `Gather` on rows of a table, where the weight is an initializer of floats, or made of initializers by
 * `DequantizeLinear`, `Cast`, `Reshape` and `Transpose`; and quantized layers that `dequantizeLayers` writes so. Nodes that read the
 * same weight are one module: of a table that is also the weight of a linear layer, the linear layer. Nodes inside of
 * branches and loops have none.
 */
export function findModules(source: Graph): GraphModule[] {
  const graph = dequantizeLayers(source)
  const consumers = consumersOf(graph)
  const found: GraphModule[] = []
  for (const [weight, { shape, dtype, ...rest }] of weightsOf(graph)) {
    const layer = (consumers.get(weight) ?? [])
      .map(node => ({ node, layer: layerOf(graph, node, weight, { shape, dtype }) }))
      .sort((a, b) => rank(a.layer) - rank(b.layer))[0]
    if (!layer?.layer) continue
    const readers = consumers.get(weight)!
    const tied = layer.layer.kind === 'linear' && readers.some(({ op }) => op === 'Gather')
    const name = moduleName([weight, ...(rest.quantized?.constants.slice(0, 1) ?? [])], layer.node)
    const isOutputEmbedding = tied || /(^|\.)(lm_head|embed_out)$/.test(name)
    found.push({ name, weight, shape, dtype, isOutputEmbedding, ...rest, ...layer.layer })
  }
  return inOrder(graph, uniqueNames(found, consumers))
}

/** What the weights of a graph are. */
type Weight = Pick<GraphModule, 'shape' | 'dtype' | 'quantized'>

function* weightsOf(graph: Graph): Generator<[name: string, weight: Weight]> {
  for (const [name, { shape, dtype }] of graph.initializers) {
    if (dtype === 'f32' || isHalf(dtype)) yield [name, { shape, dtype }]
  }
  for (const [name, quantized] of quantizedWeights(graph)) {
    const { sizes, transposed, types } = quantized
    yield [name, { shape: transposed ? [...sizes].reverse() : sizes, dtype: types.at(-1)!, quantized }]
  }
}

type Layer = Pick<GraphModule, 'kind' | 'rows' | 'cols' | 'inColumns'>

/** A linear layer decides before an embedding that shares its weight. */
const rank = (layer: Layer | undefined): number => (!layer ? 2 : layer.kind === 'embedding' ? 1 : 0)

function layerOf(graph: Graph, node: Node, weight: string, { shape }: Weight): Layer | undefined {
  if (shape.some(size => size === 0)) return undefined
  const [first = 1, ...rest] = shape
  const others = numel(rest)
  const inRows = { rows: first, cols: others, inColumns: false } as const
  const inColumns = { rows: others, cols: first, inColumns: true } as const
  if (node.domain !== '') return undefined
  switch (node.op) {
    case 'MatMul':
      if (shape.length !== 2 || graph.initializers.has(node.inputs[0]!)) return undefined
      return node.inputs[1] === weight ? { kind: 'linear', ...inColumns } : undefined
    case 'Gemm':
      if (node.inputs[1] !== weight || node.inputs[0] === weight || shape.length !== 2) return undefined
      return { kind: 'linear', ...(intOf(node, 'transB', 0) === 0 ? inColumns : inRows) }
    case 'Conv':
      if (node.inputs[1] !== weight || shape.length < 3 || shape.length > 4) return undefined
      return { kind: 'conv', ...inRows }
    case 'Gather':
      if (node.inputs[0] !== weight || shape.length !== 2 || intOf(node, 'axis', 0) !== 0) return undefined
      return { kind: 'embedding', ...inColumns }
    default:
      return undefined
  }
}

/**
 * `fc.weight` is `fc`, and so is `fc.weight_quantized`; what an exporter renamed is called after its node:
 * `/h.0/attn/c_attn/MatMul` is `h.0.attn.c_attn`.
 *
 * @param weights - the weight, and what it is made of
 */
export function moduleName(weights: readonly string[], node: Node): string {
  for (const weight of weights) {
    const [, module] = /^(.+)\.weight(_quantized|_quant|_q[48]|_[fiu]\d+)?$/.exec(weight) ?? []
    if (module !== undefined) return module
  }
  const path = node.name.split('/').filter(part => part !== '')
  return path.length > 1 ? path.slice(0, -1).join('.') : weights[0]!
}

/** Modules with a name of their own: where two have one, it is that of the node or of the weight. */
function uniqueNames(modules: readonly GraphModule[], consumers: ReadonlyMap<string, Node[]>): GraphModule[] {
  const counts = new Map<string, number>()
  for (const { name } of modules) counts.set(name, (counts.get(name) ?? 0) + 1)
  const taken = new Set<string>()
  return modules.map(module => {
    const node = consumers.get(module.weight)![0]!
    const path = node.name.split('/').filter(part => part !== '')
    const candidates = [module.name, path.join('.'), module.weight]
    const name = (counts.get(module.name) === 1 ? candidates : candidates.slice(1)).find(
      candidate => candidate !== '' && !taken.has(candidate),
    )!
    taken.add(name)
    return { ...module, name }
  })
}

/** In the order of the nodes that read them first. */
function inOrder(graph: Graph, modules: readonly GraphModule[]): GraphModule[] {
  const places = new Map<string, number>()
  for (const [place, { inputs }] of graph.nodes.entries()) {
    for (const input of inputs) if (!places.has(input)) places.set(input, place)
  }
  return [...modules].sort((a, b) => places.get(a.weight)! - places.get(b.weight)!)
}
