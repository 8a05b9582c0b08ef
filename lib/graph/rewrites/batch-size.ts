// batch-size.ts: another batch size for a graph, also where exporters have written the old one into a Reshape.
import { SparkError } from '../../core/errors.js'
import { atOnce, eachPaced, type Paced } from '../../core/paced.js'
import { describeNode } from '../attributes.js'
import { Constant } from '../constant.js'
import { freshNamesPaced } from '../edit.js'
import type { Graph, Node, SymbolicDimension, ValueInfo } from '../graph.js'
import { ShapeInference } from '../shape-inference.js'

/**
 * The graph for batches of `batchSize`. The batch is the first dimension of the first input that has dimensions: a name,
 * whose first occurrence in each input is the batch, or a number, which other inputs have as their first size, too. A Reshape whose
 * constant shape begins with the old batch size, or with a product of it and the sizes behind it, begins with the new one.
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
    const patched = node.op === 'Reshape' && node.domain === '' ? reshapeOf(node) : node
    yield* after.inferNodePaced(patched, untyped)
    nodes.push(patched)
  }

  function reshapeOf(node: Node): Node {
    const sizes = fixedSizes(node, before, after)
    if (!sizes || !isBatched(node, before, after)) return node
    const [first = 0, ...others] = sizes
    if (first <= 0) return node
    const mixed = first !== old && (others.includes(old) || first % old !== 0)
    if (mixed || !growsInFront(node, before, after)) {
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

  const outputs = graph.outputs.map(({ name }): ValueInfo => {
    const type = after.facts.get(name)?.type
    return type ? { name, type } : { name }
  })
  return { ...graph, inputs, outputs, nodes, initializers, values: new Map() }
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
  node: Node,
  inferences: readonly ShapeInference[],
): (readonly SymbolicDimension[] | undefined)[] =>
  inferences.map(({ facts }) => {
    const type = facts.get(node.inputs[0]!)?.type
    return type?.kind === 'tensor' ? type.shape : undefined
  })

/** Whether what a Reshape reads depends on the batch. */
function isBatched(node: Node, before: ShapeInference, after: ShapeInference): boolean {
  const [old, now] = shapesOf(node, [before, after])
  return old !== undefined && now !== undefined && old.some((size, i) => size !== now[i])
}

/** Whether it is the first dimension of what a Reshape reads that grows with the batch, and no other. */
function growsInFront(node: Node, before: ShapeInference, after: ShapeInference): boolean {
  const [old, now] = shapesOf(node, [before, after])
  return old!.every((size, axis) => axis === 0 || size === now![axis])
}
