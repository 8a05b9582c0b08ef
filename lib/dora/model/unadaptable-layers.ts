// unadaptable-layers.ts: layers that cannot have an adapter, and the reasons, for warnings and errors.
import { allNodes, producersOf, subgraphsOf } from '../../graph/edit.js'
import { type Graph, type Node, sparkDomain } from '../../graph/graph.js'
import { dequantizeLayers } from '../../graph/rewrites/dequantize-layers.js'
import type { NamedModule } from '../peft/target-matching.js'
import { type GraphModule, moduleName } from './find-modules.js'

/** A layer that cannot have an adapter. */
export interface UnadaptableLayer extends NamedModule {
  /** For messages, without a full stop. */
  readonly reason: string
}

/** Index of the weight among the inputs of an operator. */
const weightInputs: Readonly<Record<string, number>> = {
  MatMul: 1,
  Gemm: 1,
  Conv: 1,
  ConvTranspose: 1,
  Gather: 0,
  LSTM: 1,
  GRU: 1,
  RNN: 1,
  MatMulInteger: 1,
  ConvInteger: 1,
  QLinearMatMul: 3,
  QLinearConv: 3,
}

/**
 * Layers with constant weights that are not among `modules`.
 * @param modules - the result of {@link findModules}
 */
export function unadaptableLayers(source: Graph, modules: readonly GraphModule[]): UnadaptableLayer[] {
  const graph = dequantizeLayers(source)
  const adaptable = new Set(modules.map(({ weight }) => weight))
  const outer = new Set(graph.nodes)
  const constants = constantsOf(graph)
  const found: UnadaptableLayer[] = []
  for (const node of allNodes(graph)) {
    const index = Object.hasOwn(weightInputs, node.op) ? weightInputs[node.op]! : undefined
    if (index === undefined || (node.domain !== '' && node.domain !== 'com.microsoft')) continue
    const isLeft = node.op === 'MatMul' && !constants.has(node.inputs[1]!) && constants.has(node.inputs[0]!)
    const weight = node.inputs[isLeft ? 0 : index] ?? ''
    const isInner = !outer.has(node)
    if (!constants.has(weight) || (node.op === 'Gather' && !isTable(graph, weight))) continue
    const origins = [weight, ...(constants.get(weight) ?? [])]
    // Values computed from an adapted weight, such as the transpose of a table, change with it.
    if (!isInner && origins.some(origin => adaptable.has(origin))) continue
    const reason = isInner ? 'it is inside a branch or loop' : reasonOf(graph, node, weight, isLeft)
    found.push({ name: moduleName(origins, node), kind: kindOf(node), reason })
  }
  return found
}

/** `all-linear` covers matrix products only; recurrent layers count as conv. */
const kindOf = ({ op }: Node): NamedModule['kind'] =>
  op === 'Gather' ? 'embedding' : /MatMul|Gemm/.test(op) ? 'linear' : 'conv'

/** Values that depend only on initializers, each with the names of these. */
function constantsOf(graph: Graph): ReadonlyMap<string, readonly string[]> {
  const inner = [...allNodes(graph)].flatMap(subgraphsOf)
  const names = [graph, ...inner].flatMap(({ initializers }) => [...initializers.keys()])
  const constants = new Map<string, readonly string[]>(names.map(name => [name, []]))
  for (const { inputs, outputs, domain } of graph.nodes) {
    const read = inputs.filter(name => name !== '')
    if (domain === sparkDomain || read.length === 0 || !read.every(name => constants.has(name))) continue
    const origins = read.flatMap(name => (graph.initializers.has(name) ? [name] : constants.get(name)!))
    for (const output of outputs) constants.set(output, origins)
  }
  return constants
}

/** Whether a `Gather` from this constant is an embedding lookup, and not, say, one from a shape. */
function isTable(graph: Graph, name: string): boolean {
  const constant = graph.initializers.get(name)
  return constant?.shape.length === 2 && !['i32', 'i64', 'bool'].includes(constant.dtype)
}

function reasonOf(graph: Graph, { op }: Node, weight: string, isLeft: boolean): string {
  const constant = graph.initializers.get(weight)
  if (isLeft) return 'its weight is the left operand'
  if (/^(ConvTranspose|LSTM|GRU|RNN)$/.test(op)) return `${op} layers cannot have one`
  if (/^QLinear|Integer$/.test(op)) return `the scales of its ${op} node are not supported`
  if (!constant) {
    const producer = producersOf(graph).get(weight)?.op
    return `its weight is computed by ${producer} in an unsupported way`
  }
  const shape = `[${constant.shape.join(', ')}]`
  return `a weight of ${constant.dtype} ${shape} of a ${op} cannot have one`
}
