// group-plans.ts: which nodes share a stage: links that can carry it, and the costs of layers that are split.
import { SparkError } from '../../core/errors.js'
import { describeNode } from '../../graph/attributes.js'
import { namedStates, readsOf } from '../../graph/edit.js'
import type { Graph } from '../../graph/graph.js'
import { splitGraph } from '../../graph/rewrites/split.js'
import { checkTensorLink, type TensorLink } from '../communicators/fabric-networks.js'
import type { ClusterState } from '../node/cluster-state.js'
import { gigabytes, InfeasibleError } from '../placement/constraints.js'
import type { ModelCosts } from '../placement/costs.js'
import { type Fleet, freeBytes } from '../placement/fleet.js'
import type { FleetFile } from '../placement/fleet-file.js'
import { tensorBytes } from '../placement/graph-costs.js'

/** The numbers of the link between two nodes, once both have measured it. */
export function tensorLinkOf(
  { routes }: ClusterState,
  [a, b]: readonly [string, string],
  nameOf: (nodeId: string) => string,
): TensorLink {
  const both = routes.filter(({ from, to }) => (from === a && to === b) || (from === b && to === a))
  const trips = both.flatMap(({ rttMs }) => rttMs ?? [])
  return {
    nodes: [nameOf(a), nameOf(b)],
    fabric: both.length === 2 && both.every(({ fabric }) => fabric),
    rttMs: trips.length === 2 ? Math.max(...trips) : undefined,
  }
}

/** Links of nodes. */
export interface GroupLinks {
  readonly state: ClusterState
  readonly nameOf: (nodeId: string) => string
  /** The longest round trip, ms. Default: that of `checkTensorLink`. */
  readonly maxRttMs: number | undefined
}

/** Links between each two of some nodes. */
const linksOf = (nodeIds: readonly string[], { state, nameOf }: GroupLinks): TensorLink[] =>
  nodeIds.flatMap((a, i) => nodeIds.slice(i + 1).map(b => tensorLinkOf(state, [a, b], nameOf)))

/** @throws SparkError as `checkTensorLink`, for the first link that cannot carry a group of these nodes */
export function checkGroup(nodeIds: readonly string[], links: GroupLinks): void {
  for (const link of linksOf(nodeIds, links)) checkTensorLink(link, links.maxRttMs)
}

/** Whether all links between nodes were measured. */
export const areMeasured = (nodeIds: readonly string[], links: GroupLinks): boolean =>
  linksOf(nodeIds, links).every(({ rttMs }) => rttMs !== undefined)

/** Whether nodes can be a group. */
export function canBeGroup(nodeIds: readonly string[], links: GroupLinks): boolean {
  try {
    checkGroup(nodeIds, links)
    return true
  } catch {
    return false
  }
}

/** The links of a fleet; only those that can carry a group are fabric. */
export function groupLinksOf(
  { links = [] }: FleetFile,
  nodeIds: ReadonlyMap<string, string>,
  groups: GroupLinks,
): NonNullable<FleetFile['links']> {
  return links.map(link => {
    const [a, b] = link.between.map(name => nodeIds.get(name)!)
    return { ...link, fabric: canBeGroup([a!, b!], groups) }
  })
}

/** The most ranks, at most `count`, that divide the heads of a language model. What they do not divide of another model stays whole. */
export function worldWithin({ kind, divisible }: ModelCosts, count: number): number {
  if (kind !== 'language' || !divisible) return count
  const { heads, kvHeads } = divisible
  let world = count
  while (world > 1 && (heads % world !== 0 || kvHeads % world !== 0)) world--
  return world
}

/** @throws SparkError ERR_UNSUPPORTED for a number of ranks that does not divide the heads of a language model */
export function checkHeads(costs: ModelCosts, world: number): void {
  if (worldWithin(costs, world) === world) return
  const { heads, kvHeads } = costs.divisible!
  throw new SparkError(
    'ERR_UNSUPPORTED',
    `${world} nodes cannot share ${heads} heads with ${kvHeads} of keys and values, which ${world} does not divide: say which nodes share layers, with strategy 'hybrid' and pins such as 'embedding-head=spark-1+spark-2', or use strategy 'pipeline'`,
  )
}

/** A model that ranks share. */
export interface SharedModel {
  readonly graph: Graph
  readonly costs: ModelCosts
}

/**
 * The nodes that share a whole model: those whose memory holds their part of the weights and states, in the order given; of a language
 * model no more than divide its heads.
 * @param backend - what they compute with, where they have it
 * @throws InfeasibleError where none has
 */
export function nodesThatFit(
  { graph, costs }: SharedModel,
  { devices }: Fleet,
  nodes: readonly { readonly name: string; readonly nodeId: string }[],
  backend: string,
): string[] {
  const free = ({ name }: { name: string }): number => {
    const own = devices.filter(({ node }) => node === name)
    const device = own.find(each => each.backend === backend) ?? own[0]
    return device ? freeBytes(device) : 0
  }
  for (let fitting = [...nodes]; fitting.length > 0; ) {
    fitting = fitting.slice(0, worldWithin(costs, fitting.length))
    const own = splitGraph(graph, { rank: 0, world: fitting.length })
    const needed = own.bytes.own + stateBytes(own.graph)
    const still = fitting.filter(node => free(node) >= needed)
    if (still.length === fitting.length) return fitting.map(({ nodeId }) => nodeId)
    fitting = still
    if (still.length === 0)
      throw new InfeasibleError({
        kind: 'memory',
        message: `a part of the model needs ${gigabytes(needed)}, and no node has as much free`,
      })
  }
  return []
}

/** Bytes of states, but for those whose sizes are open. */
function stateBytes({ inputs, outputs }: Graph): number {
  const states = namedStates(inputs, outputs)
  return inputs.reduce((sum, input) => sum + (states.has(input.name) ? tensorBytes(input) : 0), 0)
}

/**
 * Costs of layers with the sums that a group makes in them, and the weights that each of its devices has whole. As they are for a language
 * model, whose costs have its sums, and where nothing of the graph can be shared.
 */
export function withSums(costs: ModelCosts, graph: Graph): ModelCosts {
  if (costs.kind === 'language') return costs
  const { graph: own, shared } = splitGraph(graph, { rank: 0, world: 2 })
  if (shared.size === 0) return costs
  const wholeBytes = (name: string): number => own.initializers.get(name)?.byteLength ?? 0
  const isSummed = (name: string): boolean => ['sum', 'rows', 'table'].includes(shared.get(name) ?? '')
  const layers = costs.layers.map((layer, i) => {
    const nodes = graph.nodes.slice(costs.layers[i - 1]?.end ?? 0, layer.end)
    const replicatedBytes = [...new Set(nodes.flatMap(readsOf))].reduce(
      (sum, name) => sum + wholeBytes(name),
      0,
    )
    const allReduces = nodes.filter(node => isSummed(describeNode(node))).length
    return { ...layer, allReduces, replicatedBytes }
  })
  // What a size does not divide stays whole on all ranks, so any size will do.
  const all = largestGroup
  return { ...costs, layers, divisible: { heads: all, kvHeads: all, hiddenSize: all } }
}

/** Of the sizes of groups that placements have. */
const largestGroup = 8
