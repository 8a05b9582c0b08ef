// graph-costs.ts: a graph as a chain of layers: cuts where little goes from what is before to what is behind.

import { elementBytes } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import { hintOf } from '../../core/size.js'
import { readsOf, subgraphsOf } from '../../graph/edit.js'
import { type Graph, type Node, sparkDomain, type ValueInfo } from '../../graph/graph.js'
import { cutPoints } from '../../graph/rewrites/cut.js'
import { type Fact, inferFacts } from '../../graph/shape-inference.js'
import { workOf } from '../../graph/statistics.js'
import type { LayerCost, ModelCosts, OperatorUse } from './costs.js'

/** Layers of a chain; of graphs with more cuts neighbours with little work are one. */
const maxLayers = 128

/** Shapes of inputs by name; sizes that are not given are 1. */
export type GraphShapes = Readonly<Record<string, readonly number[]>>

/**
 * Costs of a canonical graph for a run. The chain is cut at its {@link cutPoints}; each layer has its `end`, where `cutGraph` cuts.
 * @throws SparkError ERR_SHAPE as `inferFacts`; ERR_FORMAT for a graph without nodes
 */
export function graphCosts(name: string, graph: Graph, shapes: GraphShapes = {}): ModelCosts {
  if (graph.nodes.length === 0) throw new SparkError('ERR_FORMAT', `${name} has no nodes to put on devices`)
  const sizes = { ...sizesOfOne(graph), ...shapes }
  const facts = inferFacts(graph, { shapes: sizes })
  const cuts = [...cutPoints(graph, { shapes: sizes }), { end: graph.nodes.length, bytes: 0 }]
  const layers = cuts.map(({ end, bytes }, i) =>
    layerOf(graph, facts, cuts[i - 1]?.end ?? 0, end, hintOf(bytes)),
  )
  const merged = mergeSmall(layers)
  return {
    ...{ name, kind: 'graph', sharedBytes: 0, contextLength: undefined },
    layers: merged.map((layer, i) => ({ ...layer, name: `${i}` })),
  }
}

/** Shapes of all inputs, with open sizes 1. */
export const sizesOfOne = ({ inputs }: Graph): GraphShapes =>
  Object.fromEntries(
    inputs.flatMap(({ name, type }) =>
      type?.kind === 'tensor' && type.shape
        ? [[name, type.shape.map(size => (typeof size === 'number' ? size : 1))]]
        : [],
    ),
  )

/** Bytes of a tensor; 0 where its sizes are not all numbers. */
export function tensorBytes(value: Fact | ValueInfo | undefined): number {
  const type = value?.type
  if (type?.kind !== 'tensor' || !type.shape?.every(size => typeof size === 'number')) return 0
  return elementBytes(type.dtype, numel(type.shape as readonly number[]))
}

/** Operators that need no arithmetic of the device. */
const free = new Set(['Constant', 'Identity', 'Shape', 'Reshape', 'Flatten', 'Squeeze', 'Unsqueeze'])

function layerOf(
  graph: Graph,
  facts: ReadonlyMap<string, Fact>,
  from: number,
  end: number,
  cutBytes: number,
): LayerCost {
  const flops: Record<string, number> = {}
  const operators = new Map<string, OperatorUse>()
  let [weightBytes, workspaceBytes] = [0, 0]
  const visit = (node: Node): void => {
    const work = workOf(node, facts)
    const type = facts.get(node.outputs[0] ?? '')?.type
    const dtype = type?.kind === 'tensor' ? type.dtype : 'f32'
    if (work && work.flops > 0) flops[dtype] = (flops[dtype] ?? 0) + work.flops
    workspaceBytes = Math.max(workspaceBytes, (work?.bytes ?? 0) + inputBytes(node, graph, facts))
    const op = node.domain === '' || node.domain === sparkDomain ? node.op : `${node.domain}::${node.op}`
    if (!free.has(op)) operators.set(`${op} ${dtype}`, { op, dtype })
    for (const inner of subgraphsOf(node)) {
      for (const { byteLength } of inner.initializers.values()) weightBytes += byteLength
      for (const each of inner.nodes) visit(each)
    }
  }
  const nodes = graph.nodes.slice(from, end)
  for (const node of nodes) visit(node)
  const read = new Set(nodes.flatMap(readsOf))
  for (const name of read) weightBytes += graph.initializers.get(name)?.byteLength ?? 0
  return {
    ...{
      name: '',
      end,
      weightBytes,
      idleBytes: 0,
      flops,
      attentionFlops: 0,
      attentionDtype: 'f32',
      stateBytes: 0,
    },
    ...{ window: 0, cutBytes, workspaceBytes, allReduces: 0, lastTokenOnly: false },
    operators: [...operators.values()],
  }
}

const inputBytes = ({ inputs }: Node, { initializers }: Graph, facts: ReadonlyMap<string, Fact>): number =>
  inputs.reduce((sum, name) => sum + (initializers.has(name) ? 0 : tensorBytes(facts.get(name))), 0)

/** Joins the neighbours that have the least work together, until there are few enough. */
function mergeSmall(layers: readonly LayerCost[]): LayerCost[] {
  const merged = [...layers]
  const work = (layer: LayerCost): number =>
    layer.weightBytes + Object.values(layer.flops).reduce((sum, count) => sum + count, 0)
  const works = merged.map(work)
  while (merged.length > maxLayers) {
    let smallest = 0
    for (let i = 1; i + 1 < merged.length; i++)
      if (works[i]! + works[i + 1]! < works[smallest]! + works[smallest + 1]!) smallest = i
    merged.splice(smallest, 2, joined(merged[smallest]!, merged[smallest + 1]!))
    works.splice(smallest, 2, work(merged[smallest]!))
  }
  return merged
}

function joined(a: LayerCost, b: LayerCost): LayerCost {
  const flops = { ...a.flops }
  for (const [dtype, count] of Object.entries(b.flops)) flops[dtype] = (flops[dtype] ?? 0) + count
  const operators = new Map([...a.operators, ...b.operators].map(use => [`${use.op} ${use.dtype}`, use]))
  return {
    ...b,
    flops,
    weightBytes: a.weightBytes + b.weightBytes,
    workspaceBytes: Math.max(a.workspaceBytes, b.workspaceBytes),
    operators: [...operators.values()],
  }
}
