// find-modules.ts: the adaptable layers of a graph, with the names that PEFT would use for them.
import { isHalf } from '../../core/dtype.js'
import { numel } from '../../core/shape.js'
import { intOf } from '../../graph/attributes.js'
import { consumersOf } from '../../graph/edit.js'
import type { Graph, Node } from '../../graph/graph.js'
import { dequantizeLayers } from '../../graph/rewrites/dequantize-layers.js'
import { type WeightPattern, weightPatterns } from '../../graph/weight-pattern.js'
import type { NamedModule } from '../peft/target-matching.js'

/** A layer that can have an adapter: rows of its weight are output features. */
export interface GraphModule extends NamedModule {
  /** Name of the weight: an initializer, or a value computed from `quantized`. */
  readonly weight: string
  /** The constants and format of a weight that is not an initializer. */
  readonly quantized?: WeightPattern
  /** Shape of the weight. */
  readonly shape: readonly number[]
  /** Element type of the weight. */
  readonly dtype: 'f32' | 'f16' | 'bf16'
  /** Output features. */
  readonly rows: number
  /** Elements of the weight per output feature. */
  readonly cols: number
  /** Whether the weight is stored as [in, out], as embeddings are, with the vocabulary as input features. */
  readonly inColumns: boolean
}

/**
 * Finds the layers of a canonical graph that can have an adapter: `MatMul`, `Gemm`, one- and two-dimensional `Conv` and
 * `Gather` on the rows of a table. The weight must be a float initializer, or be computed from initializers by
 * `DequantizeLinear`, `Cast`, `Reshape` and `Transpose`; `dequantizeLayers` rewrites other quantized layers to that form.
 * Nodes that read the same weight form one module; if an embedding is tied to a linear layer, it is the linear layer.
 * Nodes inside branches and loops are not included.
 */
export function findModules(source: Graph): GraphModule[] {
  const graph = dequantizeLayers(source)
  const consumers = consumersOf(graph)
  const found: GraphModule[] = []
  for (const [weight, { shape, dtype, ...rest }] of weightsOf(graph)) {
    const layer = (consumers.get(weight) ?? [])
      .map(node => ({ node, layer: layerOf(graph, node, weight, { shape, dtype }) }))
      .sort((a, b) => precedence(a.layer) - precedence(b.layer))[0]
    if (!layer?.layer) continue
    const readers = consumers.get(weight)!
    const tied = layer.layer.kind === 'linear' && readers.some(({ op }) => op === 'Gather')
    const name = moduleName([weight, ...(rest.quantized?.constants.slice(0, 1) ?? [])], layer.node)
    const isOutputEmbedding = tied || /(^|\.)(lm_head|embed_out)$/.test(name)
    found.push({ name, weight, shape, dtype, isOutputEmbedding, ...rest, ...layer.layer })
  }
  return inOrder(graph, uniqueNames(found, consumers))
}

/** Shape and format of a weight. */
type ModuleWeight = Pick<GraphModule, 'shape' | 'dtype' | 'quantized'>

function* weightsOf(graph: Graph): Generator<[name: string, weight: ModuleWeight]> {
  for (const [name, { shape, dtype }] of graph.initializers) {
    if (dtype === 'f32' || isHalf(dtype)) yield [name, { shape, dtype }]
  }
  for (const [name, quantized] of weightPatterns(graph)) {
    const { sizes, transposed, types } = quantized
    yield [name, { shape: transposed ? [...sizes].reverse() : sizes, dtype: types.at(-1)!, quantized }]
  }
}

type Layer = Pick<GraphModule, 'kind' | 'rows' | 'cols' | 'inColumns'>

/** Precedence among the readers of a weight: a linear layer before an embedding. */
const precedence = (layer: Layer | undefined): number => (!layer ? 2 : layer.kind === 'embedding' ? 1 : 0)

function layerOf(graph: Graph, node: Node, weight: string, { shape }: ModuleWeight): Layer | undefined {
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
      return { kind: 'linear', ...(intOf(node, 'transB') === 0 ? inColumns : inRows) }
    case 'Conv':
      if (node.inputs[1] !== weight || shape.length < 3 || shape.length > 4) return undefined
      return { kind: 'conv', ...inRows }
    case 'Gather':
      if (node.inputs[0] !== weight || shape.length !== 2 || intOf(node, 'axis') !== 0) return undefined
      return { kind: 'embedding', ...inColumns }
    default:
      return undefined
  }
}

/**
 * The name of a module: `fc` for weights `fc.weight` or `fc.weight_quantized`. If an exporter renamed the weight, the path
 * of its node: `h.0.attn.c_attn` for `/h.0/attn/c_attn/MatMul`.
 *
 * @param weights - names of the weight and of the constants that it is computed from
 */
export function moduleName(weights: readonly string[], node: Node): string {
  for (const weight of weights) {
    const [, module] = /^(.+)\.weight(_quantized|_quant|_q[48]|_[fiu]\d+)?$/.exec(weight) ?? []
    if (module !== undefined) return module
  }
  const path = node.name.split('/').filter(part => part !== '')
  return path.length > 1 ? path.slice(0, -1).join('.') : weights[0]!
}

/** Makes names unique: modules with the same name are renamed after their node or their weight. */
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

/** Sorts modules by the first node that reads them. */
function inOrder(graph: Graph, modules: readonly GraphModule[]): GraphModule[] {
  const firstReaders = new Map<string, number>()
  for (const [index, { inputs }] of graph.nodes.entries()) {
    for (const input of inputs) if (!firstReaders.has(input)) firstReaders.set(input, index)
  }
  return [...modules].sort((a, b) => firstReaders.get(a.weight)! - firstReaders.get(b.weight)!)
}
