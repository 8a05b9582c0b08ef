// accumulate.ts: a step over several small batches, one after another, so that only one of them is in memory.
import { Constant } from '../constant.js'
import { freshNames, readsOf, renameReads } from '../edit.js'
import { type Graph, makeNode, type Node, type ValueInfo } from '../graph.js'
import { uniqueNames } from './unique-names.js'

/** Options of {@link accumulate}. */
export interface AccumulateOptions {
  /** Inputs that differ from part to part. */
  readonly inputs: readonly string[]
  /** Values whose weighted sums over the parts are wanted: the loss and the gradients. */
  readonly values: readonly string[]
  /** Weight of each part, such as its share of the samples. */
  readonly weights: readonly number[]
}

/** Name of an input of a part. */
export const partName = (input: string, part: number): string => `${input}/part${part}`

/**
 * Repeats the nodes that depend on `inputs` for each part, with inputs of their own ({@link partName}), and adds up
 * `values` in the order of the parts. Nodes that depend on the parameters only are not repeated. Names of `values` are
 * those of the sums afterwards; other values of the parts are no outputs any more. Weights should add up to 1, because a
 * value that does not depend on `inputs` stays as it is.
 */
export function accumulate(graph: Graph, { inputs, values, weights }: AccumulateOptions): Graph {
  const fresh = freshNames(graph)
  const varying = dependents(graph, inputs)
  const isVarying = (node: Node): boolean => node.outputs.some(name => varying.has(name))
  const initializers = new Map(graph.initializers)
  const nodes = graph.nodes.filter(node => !isVarying(node))
  const sums = new Map<string, string>()
  weights.forEach((weight, part) => {
    const names = new Map([...varying].map(name => [name, fresh(partName(name, part))]))
    for (const input of inputs) names.set(input, partName(input, part))
    const repeated = { ...graph, nodes: graph.nodes.filter(isVarying) }
    for (const node of renameReads(repeated, names).nodes) {
      nodes.push({ ...node, outputs: node.outputs.map(name => names.get(name) ?? name) })
    }
    const factor = fresh('accumulate/weight')
    initializers.set(factor, Constant.f32(weight))
    for (const value of values) {
      if (!varying.has(value)) continue
      const share = fresh(`accumulate/${value}`)
      const sum = part === weights.length - 1 ? value : fresh(`accumulate/${value}`)
      const before = sums.get(value)
      nodes.push(makeNode('Mul', [names.get(value)!, factor], [share]))
      nodes.push(before ? makeNode('Add', [before, share], [sum]) : makeNode('Identity', [share], [sum]))
      sums.set(value, sum)
    }
  })
  const partInputs = (info: ValueInfo): ValueInfo[] =>
    inputs.includes(info.name) ? weights.map((_, part) => partOf(info, part)) : [info]
  return uniqueNames({
    ...graph,
    inputs: graph.inputs.flatMap(partInputs),
    outputs: graph.outputs.filter(({ name }) => !varying.has(name) || values.includes(name)),
    nodes,
    initializers,
  })
}

/** An input of a part. Sizes by name are its own: the last part of an epoch may be smaller. */
function partOf({ name, type }: ValueInfo, part: number): ValueInfo {
  const info = { name: partName(name, part) }
  if (type?.kind !== 'tensor' || !type.shape) return type ? { ...info, type } : info
  const shape = type.shape.map(size => (typeof size === 'string' ? partName(size, part) : size))
  return { ...info, type: { ...type, shape } }
}

/** Values that nodes make from `names`. */
function dependents(graph: Graph, names: readonly string[]): Set<string> {
  const found = new Set(names)
  for (const node of graph.nodes) {
    if (!readsOf(node).some(name => found.has(name))) continue
    for (const name of node.outputs) if (name !== '') found.add(name)
  }
  for (const name of names) found.delete(name)
  return found
}
