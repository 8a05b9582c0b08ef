// module-weight.ts: reading and writing the weight of a graph module as f32 rows, one per output feature.
import { relativeError } from '../../core/difference.js'
import type { DType, DTypeArray } from '../../core/dtype.js'
import { transpose } from '../../core/transpose.js'
import { Constant } from '../../graph/constant.js'
import { consumersOf, freshNames, producersOf, renameReads } from '../../graph/edit.js'
import type { Graph, Node } from '../../graph/graph.js'
import { removeDead } from '../../graph/rewrites/remove-dead.js'
import { dequantize, requantize } from '../../graph/weight-pattern.js'
import { Tensor } from '../../memory/tensor.js'
import type { GraphModule } from './find-modules.js'
import { rescaleBiases } from './rescale-biases.js'
import { withConstants } from './weight-hash.js'

/** The weight of a module as f32 [rows, cols]; not copied if the graph stores it like that. */
export function weightRows(source: Graph, module: GraphModule): Float32Array {
  const { weight, quantized, inColumns, rows, cols } = module
  const graph = withConstants(source, module)
  const values = quantized ? dequantize(graph, quantized) : floatsOf(graph.initializers.get(weight)!)
  const isTransposed = inColumns !== (quantized?.transposed ?? false)
  return isTransposed ? transpose(values, cols, rows) : values
}

/** The elements of an f32, f16 or bf16 constant as f32. */
export function floatsOf({ dtype, data }: Constant): Float32Array {
  return Tensor.from(data as DTypeArray, { dtype: dtype as DType }).toFloat32()
}

/** A constant of the given type and shape with these values, rounded to nearest even. */
export function constantOf(
  dtype: 'f32' | 'f16' | 'bf16',
  shape: readonly number[],
  values: Float32Array,
): Constant {
  return Constant.from(dtype, shape, dtype === 'f32' ? values : Tensor.from(values).to(dtype).data)
}

/** A graph with new values in a module's weight. */
export interface StoredRows {
  readonly graph: Graph
  /** Relative rounding error ‖stored − rows‖ / ‖rows‖. */
  readonly loss: number
}

/** Stores rows [rows, cols] in the format and layout of the module's weight. Other readers of shared constants are unaffected. */
export function storeRows(graph: Graph, module: GraphModule, rows: Float32Array): StoredRows {
  const { weight, quantized, inColumns } = module
  const isTransposed = inColumns !== (quantized?.transposed ?? false)
  const values = isTransposed ? transpose(rows, module.rows, module.cols) : rows
  if (quantized) {
    const own = withOwnWeight(graph, weight)
    const constants = quantized.constants.map(name => own.names.get(name) ?? name)
    const format = { ...quantized, constants }
    const made = requantize(own.graph, format, values)
    const stored = { ...own.graph, initializers: new Map([...own.graph.initializers, ...made]) }
    const loss = relativeError(dequantize(stored, format), values)
    return { graph: rescaleBiases(own.graph, stored, own.names.get(weight) ?? weight, format), loss }
  }
  const { dtype, shape } = graph.initializers.get(weight)!
  const stored = constantOf(dtype as 'f32', shape, values)
  const loss = dtype === 'f32' ? 0 : relativeError(floatsOf(stored), values)
  return { graph: { ...graph, initializers: new Map([...graph.initializers, [weight, stored]]) }, loss }
}

/** Replaces the weight of a module, and the nodes that compute it, by rows [rows, cols] as a constant of its type. */
export function withFloatRows(graph: Graph, module: GraphModule, rows: Float32Array): Graph {
  const { weight, dtype, shape, inColumns } = module
  const values = inColumns ? transpose(rows, module.rows, module.cols) : rows
  const nodes = graph.nodes.filter(({ outputs }) => !outputs.includes(weight))
  const initializers = new Map([...graph.initializers, [weight, constantOf(dtype, shape, values)]])
  return removeDead({ ...graph, nodes, initializers })
}

/**
 * Gives a weight its own copies of the nodes and constants that compute it, if other nodes read them as well. `names`
 * maps the names of what was copied to those of the copies.
 */
function withOwnWeight(graph: Graph, weight: string): { graph: Graph; names: ReadonlyMap<string, string> } {
  const producers = producersOf(graph)
  const consumers = consumersOf(graph)
  const ancestors = new Set<Node>()
  const values = new Set<string>()
  const visit = (name: string): void => {
    if (name === '' || values.has(name)) return
    values.add(name)
    const node = producers.get(name)
    if (!node) return
    for (const input of node.inputs) visit(input)
    ancestors.add(node)
  }
  visit(weight)
  const outputs = new Set(graph.outputs.map(({ name }) => name))
  const isShared = [...values].some(
    name => name !== weight && (outputs.has(name) || consumers.get(name)!.some(node => !ancestors.has(node))),
  )
  if (!isShared) return { graph, names: new Map() }
  const fresh = freshNames(graph)
  const names = new Map(Array.from(values, name => [name, fresh(name)]))
  const nameOf = (name: string): string => names.get(name) ?? name
  const copies = Array.from(ancestors, node => ({
    ...node,
    inputs: node.inputs.map(nameOf),
    outputs: node.outputs.map(nameOf),
  }))
  const constants = [...values].flatMap(name => {
    const constant = graph.initializers.get(name)
    return constant ? [[nameOf(name), constant] as const] : []
  })
  const { nodes } = renameReads(graph, new Map([[weight, nameOf(weight)]]))
  const initializers = new Map([...graph.initializers, ...constants])
  return { graph: { ...graph, nodes: [...copies, ...nodes], initializers }, names }
}
