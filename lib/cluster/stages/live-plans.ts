// live-plans.ts: placements on the machines of a running cluster as the stages of a pipeline.
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import type { ModelCosts } from '../placement/costs.js'
import type { Fleet } from '../placement/fleet.js'
import type { FleetFile, LinkSpec } from '../placement/fleet-file.js'
import type { Placement } from '../placement/place.js'
import type { CurrentPlacement } from '../placement/problem.js'
import type { StageOptions } from './questions.js'
import type { StagePlan } from './stage-place.js'

/** How stages compute. */
type Computing = { readonly [Name in keyof StageOptions]?: StageOptions[Name] | undefined }

/** The nodes that can take layers. */
export interface LiveNodes {
  readonly fleet: Fleet
  /** Ids of the nodes by their names in the fleet. */
  readonly nodeIds: ReadonlyMap<string, string>
}

/** What goes from stage to stage passes this node: links between two others are those of both to it, one after the other. */
export function throughHere(fleet: FleetFile, own: string): FleetFile {
  const spokes = new Map<string, LinkSpec>()
  for (const { between, ...link } of fleet.links ?? [])
    if (between.includes(own)) spokes.set(between.find(name => name !== own)!, link)
  const nodes = fleet.nodes.filter(({ name }) => name === own || spokes.has(name))
  const links = [...spokes].flatMap(([a, first], i) => [
    { between: [a, own] as [string, string], ...first },
    ...[...spokes].slice(i + 1).map(([b, second]) => ({
      between: [a, b] as [string, string],
      latency: first.latency + second.latency,
      bandwidth: 1 / (1 / first.bandwidth + 1 / second.bandwidth),
    })),
  ])
  return { nodes, links }
}

/** A plan in parts, of which those that its node has already stay as they are. */
export function besideKept(plan: StagePlan, kept: readonly StagePlan[]): StagePlan[] {
  const own = kept.filter(
    each =>
      each.nodeId === plan.nodeId &&
      `${each.group}` === `${plan.group}` &&
      each.from >= plan.from &&
      each.end <= plan.end,
  )
  const places = new Set([plan.from, ...own.flatMap(({ from, end }) => [from, end]), plan.end])
  const ends = [...places].sort((a, b) => a - b)
  return ends.slice(1).map((end, i) => ({ ...plan, from: ends[i]!, end }))
}

/** The devices that have each layer by now. */
export function heldBy(
  kept: readonly StagePlan[],
  { layers }: ModelCosts,
  { fleet, nodeIds }: LiveNodes,
): CurrentPlacement {
  const devicesOf = ({ nodeId, group = [nodeId], options: { backend } }: StagePlan): string[] =>
    fleet.devices.flatMap(device =>
      group.includes(nodeIds.get(device.node)!) && (backend === 'auto' || backend === device.backend)
        ? [device.name]
        : [],
    )
  return layers.map(({ end }) => {
    const plan = kept.find(each => end! > each.from && end! <= each.end)
    return plan ? devicesOf(plan) : []
  })
}

/** Layers as nodes of the graph. */
export function plansOf(
  { layers }: ModelCosts,
  { stages }: Placement,
  { fleet, nodeIds }: LiveNodes,
  options: Computing,
): StagePlan[] {
  return stages.map(({ devices, from, end }) => {
    const own = devices.map(each => fleet.devices.find(({ name }) => name === each)!)
    const group = own.map(({ node }) => nodeIds.get(node)!)
    return {
      ...nodesOf(group, own[0]!.backend as NonNullable<StageOptions['backend']>, options),
      from: from === 0 ? 0 : layers[from - 1]!.end!,
      end: layers[end - 1]!.end!,
    }
  })
}

/** The nodes of a stage, and how they run it. A group that was placed on GPUs computes there if all of its nodes can. */
function nodesOf(
  group: readonly string[],
  placed: NonNullable<StageOptions['backend']>,
  { backend, sums, precision = 'fp32', threads, token }: Computing,
): Pick<StagePlan, 'nodeId' | 'group' | 'options'> {
  const isGroup = group.length > 1
  if (isGroup && backend === 'js')
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `backend '${backend}' cannot sum over nodes that share layers: leave options.backend out, or use strategy 'pipeline'`,
    )
  const ofGroup = placed === 'cuda' || sums === 'nccl' ? 'auto' : placed
  return {
    nodeId: group[0]!,
    ...(isGroup && { group }),
    options: {
      backend: backend ?? (isGroup ? ofGroup : placed),
      ...(isGroup && sums !== undefined && { sums }),
      precision,
      ...(threads !== undefined && { threads }),
      ...(token !== undefined && { token }),
    },
  }
}

/** All layers on a group, or on the only node of it. */
export const wholeOn = (group: readonly string[], { nodes }: Graph, options: Computing): StagePlan => ({
  ...nodesOf(group, 'auto', options),
  ...{ from: 0, end: nodes.length },
})
