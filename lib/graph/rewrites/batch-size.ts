// batch-size.ts: another batch size for a graph, also where exporters have written the old one into a Reshape.
import { SparkError } from '../../core/errors.js'
import { atOnce, eachPaced, type Paced } from '../../core/paced.js'
import { describeNode, intOf } from '../attributes.js'
import { Constant } from '../constant.js'
import { freshNamesPaced } from '../edit.js'
import { type Graph, makeNode, type Node, type SymbolicDimension, type ValueInfo } from '../graph.js'
import { ShapeInference } from '../shape-inference.js'

/**
 * The graph for batches of `batchSize`. The batch is the first dimension of the first input that has dimensions: a name,
 * whose first occurrence in each input is the batch, or a number, which other inputs have as their first size, too. A Reshape whose
 * constant shape begins with the old batch size, or with a product of it and the sizes behind it, begins with the new one. Constants
 * with the old batch size that are joined to values of the batch are repeated.
 *
 * @param graph - a canonical graph
 * @throws SparkError ERR_UNSUPPORTED naming a Reshape that mixes the batch with other dimensions, or when no input has a
 * dimension; ERR_SHAPE naming a node that other constants tie to the old size
 */
export function setBatchSize(graph: Graph, batchSize: number): Graph {
  return atOnce(setBatchSizePaced(graph, batchSize))
}

/** {@link setBatchSize} with pauses. */
export function* setBatchSizePaced(graph: Graph, batchSize: number): Paced<Graph> {
  const batch = batchOf(graph)
  const old = typeof batch === 'number' ? batch : 1
  const inputs = inputsOf(graph, batch, batchSize)
  const before = yield* inferenceOf(graph, inputsOf(graph, batch, old))
  const after = yield* inferenceOf(graph, inputs)
  const [initializers, fresh] = [new Map(graph.initializers), yield* freshNamesPaced(graph)]
  const untyped = { ...graph, outputs: [], values: new Map() }
  const nodes: Node[] = []
  for (const node of graph.nodes) {
    yield* before.inferNodePaced(node, graph)
    const patched = node.domain !== '' ? node : node.op === 'Reshape' ? reshapeOf(node) : concatOf(node)
    yield* after.inferNodePaced(patched, untyped)
    nodes.push(patched)
  }

  function reshapeOf(node: Node): Node {
    const sizes = fixedSizes(node, before, after)
    if (!sizes || !isBatched(node.inputs[0]!, before, after)) return node
    const [first = 0, ...others] = sizes
    if (first <= 0) return node
    const mixed = first !== old && (others.includes(old) || first % old !== 0)
    if (mixed || !growsInFront(node.inputs[0]!, before, after)) {
      const why = `its shape [${sizes.join(', ')}] mixes the batch with other dimensions`
      throw new SparkError(
        'ERR_UNSUPPORTED',
        `${describeNode(node)}: ${why}; the batch size cannot be changed`,
      )
    }
    const name = fresh(`${node.inputs[1]}/batch`)
    const shape = Constant.i64([(first / old) * batchSize, ...others])
    initializers.set(name, shape)
    after.defineConstant(name, shape)
    return { ...node, inputs: [node.inputs[0]!, name] }
  }

  /** A Concat whose constants grow with the batch; any other node as it is. */
  function concatOf(node: Node): Node {
    if (node.op !== 'Concat' || batchSize % old !== 0) return node
    if (!node.inputs.some(name => isBatched(name, before, after))) return node
    const axis = intOf(node, 'axis')
    const isRow = (name: string): boolean => {
      const shape = graph.initializers.get(name)?.shape
      return shape?.[0] === old && axis !== 0 && axis !== -shape.length
    }
    return { ...node, inputs: node.inputs.map(name => (isRow(name) ? repeated(name) : name)) }
  }

  function repeated(name: string): string {
    const [output, repeats] = [fresh(`${name}/batch`), fresh(`${name}/repeats`)]
    const counts = Constant.i64(
      graph.initializers.get(name)!.shape.map((_, axis) => (axis === 0 ? batchSize / old : 1)),
    )
    initializers.set(repeats, counts)
    after.defineConstant(repeats, counts)
    const tile = makeNode('Tile', [name, repeats], [output])
    nodes.push(tile)
    after.inferNode(tile, untyped)
    return output
  }

  const outputs = graph.outputs.map(({ name }): ValueInfo => {
    const type = after.facts.get(name)?.type
    return type ? { name, type } : { name }
  })
  return { ...graph, inputs, outputs, nodes, initializers, values: new Map() }
}

/**
 * The graph for the batch that inputs of these shapes have, where the file says another one; otherwise the graph itself.
 * @throws SparkError as {@link setBatchSize}
 */
export function fitBatchSize(graph: Graph, shapes: Readonly<Record<string, readonly number[]>>): Graph {
  const batch = fixedBatchOf(graph)
  const wanted = batch && shapes[batch.name]?.[0]
  if (batch === undefined || wanted === undefined || wanted === batch.size) return graph
  return setBatchSize(graph, wanted)
}

/** Whether the batch size of the file is written into nodes, which {@link fitBatchSize} changes. */
export function writesBatchSize(graph: Graph): boolean {
  const old = fixedBatchOf(graph)?.size
  if (old === undefined) return false
  try {
    const { nodes } = setBatchSize(graph, 2 * old)
    return nodes.some((node, i) => node !== graph.nodes[i])
  } catch (error) {
    if (error instanceof SparkError) return false
    throw error
  }
}

/** The input that counts the batch, and the number that the file says. */
function fixedBatchOf({ inputs }: Graph): { readonly name: string; readonly size: number } | undefined {
  for (const { name, type } of inputs) {
    if (type?.kind !== 'tensor' || !type.shape?.length) continue
    const [size] = type.shape
    return typeof size === 'number' ? { name, size } : undefined
  }
  return undefined
}

/** The size that counts the batch. */
function batchOf({ inputs }: Graph): SymbolicDimension {
  for (const { type } of inputs) if (type?.kind === 'tensor' && type.shape?.length) return type.shape[0]!
  throw new SparkError('ERR_UNSUPPORTED', 'no input of the model has a dimension that could be the batch')
}

/** The inputs with `size` in the place of the batch. */
function inputsOf({ inputs }: Graph, batch: SymbolicDimension, size: number): ValueInfo[] {
  return inputs.map(info => {
    const { name, type } = info
    if (type?.kind !== 'tensor' || !type.shape) return info
    const at = type.shape.indexOf(batch)
    if (at < 0 || (at > 0 && typeof batch !== 'string')) return info
    return { name, type: { ...type, shape: type.shape.map((dim, axis) => (axis === at ? size : dim)) } }
  })
}

function* inferenceOf(graph: Graph, inputs: readonly ValueInfo[]): Paced<ShapeInference> {
  const inference = new ShapeInference({ trustFile: false, strict: true })
  yield* eachPaced(graph.initializers, ([name, constant]) => inference.defineConstant(name, constant))
  for (const { name, type } of inputs) inference.facts.set(name, { type })
  return inference
}

/** The shape that a Reshape wants, where it is the same for every batch. */
function fixedSizes(node: Node, before: ShapeInference, after: ShapeInference): number[] | undefined {
  const [old, now] = [before, after].map(({ facts }) => facts.get(node.inputs[1]!)?.known?.elements)
  if (!old?.every(size => typeof size === 'number') || old.some((size, i) => size !== now?.[i]))
    return undefined
  return old as number[]
}

const shapesOf = (
  name: string,
  inferences: readonly ShapeInference[],
): (readonly SymbolicDimension[] | undefined)[] =>
  inferences.map(({ facts }) => {
    const type = facts.get(name)?.type
    return type?.kind === 'tensor' ? type.shape : undefined
  })

/** Whether a value depends on the batch. */
function isBatched(name: string, before: ShapeInference, after: ShapeInference): boolean {
  const [old, now] = shapesOf(name, [before, after])
  return old !== undefined && now !== undefined && old.some((size, i) => size !== now[i])
}

/** Whether it is the first dimension of a value that grows with the batch, and no other. */
function growsInFront(name: string, before: ShapeInference, after: ShapeInference): boolean {
  const [old, now] = shapesOf(name, [before, after])
  return old!.every((size, axis) => axis === 0 || size === now![axis])
}
