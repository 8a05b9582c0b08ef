// unadaptable.ts: layers with weights that no adapter can go to, so that nobody believes that they have one.
import { allNodes, producersOf, subgraphsOf } from '../../graph/edit.js'
import { type Graph, type Node, sparkDomain } from '../../graph/graph.js'
import { dequantizeLayers } from '../../graph/rewrites/dequantize-layers.js'
import type { NamedModule } from '../peft/matching.js'
import { type GraphModule, moduleName } from './modules.js'

/** A layer without an adapter, and why. */
export interface UnadaptableLayer extends NamedModule {
  /** In words. */
  readonly reason: string
}

/** Which input of an operator is the weight. */
const weightInputs: Readonly<Record<string, number>> = {
  ...{ MatMul: 1, Gemm: 1, Conv: 1, ConvTranspose: 1, Gather: 0, LSTM: 1, GRU: 1, RNN: 1 },
  ...{ MatMulInteger: 1, ConvInteger: 1, QLinearMatMul: 3, QLinearConv: 3 },
}

/**
 * Layers whose weights are constants, and that {@link findModules} did not find.
 * @param modules - what it found
 */
export function unadaptableLayers(source: Graph, modules: readonly GraphModule[]): UnadaptableLayer[] {
  const graph = dequantizeLayers(source)
  const adaptable = new Set(modules.map(({ weight }) => weight))
  const outer = new Set(graph.nodes)
  const constants = constantsOf(graph)
  const found: UnadaptableLayer[] = []
  for (const node of allNodes(graph)) {
    const at = Object.hasOwn(weightInputs, node.op) ? weightInputs[node.op]! : undefined
    if (at === undefined || (node.domain !== '' && node.domain !== 'com.microsoft')) continue
    const isLeft = node.op === 'MatMul' && !constants.has(node.inputs[1]!) && constants.has(node.inputs[0]!)
    const weight = node.inputs[isLeft ? 0 : at] ?? ''
    const isInner = !outer.has(node)
    if (!constants.has(weight) || (node.op === 'Gather' && !isTable(graph, weight))) continue
    const origins = [weight, ...(constants.get(weight) ?? [])]
    // What nodes make of an adapted weight changes with it, such as the transpose of a table.
    if (!isInner && origins.some(origin => adaptable.has(origin))) continue
    const reason = isInner ? 'it is inside of a branch or loop' : reasonOf(graph, node, weight, isLeft)
    found.push({ name: moduleName(origins, node), kind: kindOf(node), reason })
  }
  return found
}

/** `all-linear` means products; recurrent layers have a kernel as convolutions do. */
const kindOf = ({ op }: Node): NamedModule['kind'] =>
  op === 'Gather' ? 'embedding' : /MatMul|Gemm/.test(op) ? 'linear' : 'conv'

/** Values that depend on initializers only, and by which initializers. */
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

/** Whether a `Gather` from it looks rows up: shapes are gathered from, too. */
function isTable(graph: Graph, name: string): boolean {
  const constant = graph.initializers.get(name)
  return constant?.shape.length === 2 && !/^i(32|64)$|bool/.test(constant.dtype)
}

function reasonOf(graph: Graph, { op }: Node, weight: string, isLeft: boolean): string {
  const constant = graph.initializers.get(weight)
  if (isLeft) return 'its weight is the left operand'
  if (/^(ConvTranspose|LSTM|GRU|RNN)$/.test(op)) return `${op} layers cannot have one`
  if (/^QLinear|Integer$/.test(op)) return `its ${op} node is not scaled in a way that is understood`
  if (!constant) {
    const maker = producersOf(graph).get(weight)?.op
    return `its weight is made by ${maker} in a way that is not understood`
  }
  const shape = `[${constant.shape.join(', ')}]`
  return `a weight of ${constant.dtype} ${shape} of a ${op} cannot have one`
}
