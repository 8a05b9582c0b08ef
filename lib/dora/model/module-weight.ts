// module-weight.ts: the weight of a layer in a graph as rows of out features in f32, and back.
import { relativeError } from '../../core/difference.js'
import type { DType, DTypeArray } from '../../core/dtype.js'
import { transpose } from '../../core/transpose.js'
import { Constant } from '../../graph/constant.js'
import { consumersOf, freshNames, producersOf, renameReads } from '../../graph/edit.js'
import type { Graph, Node } from '../../graph/graph.js'
import { dequantize, requantize } from '../../graph/quantized-weight.js'
import { dequantizeLayers } from '../../graph/rewrites/dequantize-layers.js'
import { removeDead } from '../../graph/rewrites/remove-dead.js'
import { Tensor } from '../../memory/tensor.js'
import { rescaleBiases } from './bias-units.js'
import type { GraphModule } from './modules.js'

/** The weight of a module, [rows, cols], in f32; the elements of the graph itself where they are that already. */
export function weightRows(source: Graph, module: GraphModule): Float32Array {
  const { weight, quantized, inColumns, rows, cols } = module
  const graph = withConstants(source, module)
  const values = quantized ? dequantize(graph, quantized) : floatsOf(graph.initializers.get(weight)!)
  const isTransposed = inColumns !== (quantized?.transposed ?? false)
  return isTransposed ? transpose(values, cols, rows) : values
}

/** The initializers that a module's weight is made of. */
export function weightConstants(graph: Graph, module: GraphModule): Constant[] {
  const { initializers } = withConstants(graph, module)
  return (module.quantized?.constants ?? [module.weight]).map(name => initializers.get(name)!)
}

/** A graph that has the constants of a weight, some of which dequantizing its layer may make. */
function withConstants(graph: Graph, { weight, quantized }: GraphModule): Graph {
  const isComplete = quantized?.constants.every(name => graph.initializers.has(name)) ?? true
  return isComplete ? graph : dequantizeLayers(graph, new Set([weight]))
}

/** The elements of a constant of f32, f16 or bf16 as f32. */
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

/** A graph with other numbers in a module's weight, and what rounding to its format lost. */
export interface StoredRows {
  readonly graph: Graph
  /** ‖stored − rows‖ / ‖rows‖ */
  readonly loss: number
}

/** Rows [rows, cols] in the format and layout of the module's weight. What others read of it stays as it was. */
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

/** The graph whose module reads rows [rows, cols] as a constant of its type, whatever nodes made the weight before. */
export function withFloatRows(graph: Graph, module: GraphModule, rows: Float32Array): Graph {
  const { weight, dtype, shape, inColumns } = module
  const values = inColumns ? transpose(rows, module.rows, module.cols) : rows
  const nodes = graph.nodes.filter(({ outputs }) => !outputs.includes(weight))
  const initializers = new Map([...graph.initializers, [weight, constantOf(dtype, shape, values)]])
  return removeDead({ ...graph, nodes, initializers })
}

/**
 * The graph in which nobody else reads what the nodes behind a weight read and make: where somebody does, they are there
 * twice. `names` has the new names of what was doubled.
 */
function withOwnWeight(graph: Graph, weight: string): { graph: Graph; names: ReadonlyMap<string, string> } {
  const [producers, consumers] = [producersOf(graph), consumersOf(graph)]
  const behind = new Set<Node>()
  const values = new Set<string>()
  const visit = (name: string): void => {
    if (name === '' || values.has(name)) return
    values.add(name)
    const node = producers.get(name)
    if (!node) return
    for (const input of node.inputs) visit(input)
    behind.add(node)
  }
  visit(weight)
  const outputs = new Set(graph.outputs.map(({ name }) => name))
  const isShared = [...values].some(
    name => name !== weight && (outputs.has(name) || consumers.get(name)!.some(node => !behind.has(node))),
  )
  if (!isShared) return { graph, names: new Map() }
  const fresh = freshNames(graph)
  const names = new Map(Array.from(values, name => [name, fresh(name)]))
  const nameOf = (name: string): string => names.get(name) ?? name
  const doubled = Array.from(behind, node => ({
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
  return { graph: { ...graph, nodes: [...doubled, ...nodes], initializers }, names }
}
