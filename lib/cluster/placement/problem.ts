// problem.ts: the numbers of a placement, from the costs of a model and the devices of a fleet.
import type { Block, Chain } from './chain.js'
import {
  decodeFlopsOf,
  heldBytesOf,
  type LayerCost,
  type Load,
  type ModelCosts,
  readBytesOf,
  shareOf,
} from './costs.js'
import { canRun, type Fleet, type FleetDevice, flopRate, freeBytes, type LinkSpec } from './fleet.js'

/** A device, or a group of devices that share each layer (tensor parallelism). */
export interface Candidate {
  /** That of the device; those of the devices of a group, joined by `+`. */
  readonly name: string
  /** The devices. */
  readonly members: readonly FleetDevice[]
}

/** Layers that the user put on a node or device. */
export interface Pin {
  /** First layer, an index of {@link ModelCosts.layers}. */
  readonly from: number
  /** One behind the last layer. */
  readonly end: number
  /** Name of a node or device; of a group the names of all, joined by `+`. */
  readonly target: string
}

/** Names of the devices that hold each layer now; [] where none does. */
export type CurrentPlacement = readonly (readonly string[])[]

/** Devices and the links between them. */
export type Network = Pick<Fleet, 'devices' | 'link' | 'linkClass'> & Partial<Pick<Fleet, 'groupLink'>>

/** What is placed where, for which load. */
export interface Task {
  readonly costs: ModelCosts
  readonly fleet: Network
  readonly load: Load
  readonly pins: readonly Pin[]
  readonly current: CurrentPlacement | undefined
}

/** Seconds that a message takes. */
export const linkSeconds = ({ latency, bandwidth }: LinkSpec, bytes: number): number =>
  latency + bytes / bandwidth

/**
 * Seconds of an all-reduce of `bytes` over `size` devices: recursive doubling for short messages, a ring for long ones (Thakur,
 * Rabenseifner, Gropp, 2005).
 */
export function allReduceSeconds({ latency, bandwidth }: LinkSpec, size: number, bytes: number): number {
  const doubling = Math.log2(size) * (latency + bytes / bandwidth)
  const ring = 2 * (size - 1) * (latency + bytes / size / bandwidth)
  return Math.min(doubling, ring)
}

/** The link that two devices of a group share layers over. */
export const linkInGroup = (fleet: Network, a: FleetDevice, b: FleetDevice): LinkSpec | undefined =>
  fleet.groupLink ? fleet.groupLink(a, b) : fleet.link(a, b)

/** The slowest link between devices of a group; undefined where two cannot reach each other. */
export function groupLink(fleet: Network, members: readonly FleetDevice[]): LinkSpec | undefined {
  let slowest: LinkSpec = { latency: 0, bandwidth: Number.POSITIVE_INFINITY, fabric: true }
  for (const [i, a] of members.entries())
    for (const b of members.slice(i + 1)) {
      const link = linkInGroup(fleet, a, b)
      if (!link) return undefined
      slowest = {
        latency: Math.max(slowest.latency, link.latency),
        bandwidth: Math.min(slowest.bandwidth, link.bandwidth),
        fabric: slowest.fabric === true && link.fabric === true,
      }
    }
  return slowest
}

/** Whether a pin lets a layer be on a candidate. */
export function isPinnedTo({ target }: Pin, { members }: Candidate): boolean {
  const names = target.split('+')
  const isNamed = ({ name, node }: FleetDevice): boolean => names.includes(name) || names.includes(node)
  return members.every(isNamed) && (names.length === 1 || names.length === members.length)
}

/** Bytes that a member of a candidate has free; the smallest. */
export const candidateBytes = ({ members }: Candidate): number =>
  members.reduce((smallest, member) => Math.min(smallest, freeBytes(member)), Number.POSITIVE_INFINITY)

/** Bytes that each member of a candidate needs for a block of layers: its share of weights and state, and the largest workspace. */
export function blockBytes(
  { costs, load }: Pick<Task, 'costs' | 'load'>,
  size: number,
  from: number,
  end: number,
): number {
  let [held, workspace] = [0, 0]
  for (let l = from; l < end; l++) {
    const layer = costs.layers[l]!
    held += shareOf(heldBytesOf(layer, load), layer, size)
    workspace = Math.max(workspace, layer.workspaceBytes * load.batch)
  }
  if (from === 0 && end === costs.layers.length) held -= costs.sharedBytes / size
  return held + workspace
}

/**
 * Seconds of a layer on a candidate: max(bytes / bandwidth, arithmetic / rate) of its slowest member, each of which has an equal share,
 * and the all-reduces of a group.
 */
function layerSeconds(
  layer: LayerCost,
  { members }: Candidate,
  load: Load,
  link: LinkSpec | undefined,
): number {
  const size = members.length
  const bytes = shareOf(readBytesOf(layer, load), layer, size)
  const flops = decodeFlopsOf(layer, load)
  let slowest = 0
  for (const device of members) {
    let computing = 0
    for (const [dtype, count] of flops) computing += count / size / flopRate(device, dtype)
    slowest = Math.max(slowest, bytes / device.bandwidth, computing)
  }
  // A group without links has no layers: see `firstOf`.
  if (!link) return slowest
  return slowest + layer.allReduces * allReduceSeconds(link, size, layer.cutBytes * load.batch)
}

/** Whether a candidate may have a layer: its operators, and the pins. */
export function isAllowed({ costs, pins }: Task, candidate: Candidate, l: number): boolean {
  const { operators } = costs.layers[l]!
  if (!candidate.members.every(device => operators.every(use => canRun(device, use)))) return false
  return pins.every(pin => l < pin.from || l >= pin.end || isPinnedTo(pin, candidate))
}

/** Begins of the longest blocks that a candidate can hold, [L + 1]: see {@link Chain.first}. A group without links holds none. */
function firstOf(task: Task, candidate: Candidate, link: LinkSpec | undefined): Int32Array {
  const count = task.costs.layers.length
  const size = candidate.members.length
  if (size > 1 && !link) return Int32Array.from({ length: count + 1 }, (_, q) => q)
  const first = new Int32Array(count + 1)
  const free = candidateBytes(candidate)
  let p = 0
  for (let q = 1; q <= count; q++) {
    if (!isAllowed(task, candidate, q - 1)) p = q
    while (p < q && blockBytes(task, size, p, q) > free) p++
    first[q] = p
  }
  return first
}

/** Seconds to send what enters each layer from a candidate to another: each receiver gets it from the sender that is nearest to it. */
export function candidateHops(
  { costs, fleet, load }: Task,
  from: Candidate,
  to: Candidate,
  hops: Float64Array,
): void {
  hops.fill(0)
  for (const receiver of to.members) {
    const links = from.members.flatMap(sender => fleet.link(sender, receiver) ?? [])
    for (let p = 1; p < hops.length; p++) {
      const bytes = costs.layers[p - 1]!.cutBytes * load.batch
      let nearest = Number.POSITIVE_INFINITY
      for (const link of links) nearest = Math.min(nearest, linkSeconds(link, bytes))
      hops[p] = Math.max(hops[p]!, nearest)
    }
  }
}

/** Bytes of weights and state that are moved for a layer to be on a candidate: the shares of members that do not hold it. */
function movedOf({ costs, load, current }: Task, { members }: Candidate, l: number): number {
  if (!current) return 0
  const layer = costs.layers[l]!
  const holders = current[l] ?? []
  const missing = members.filter(({ name }) => !holders.includes(name)).length
  return shareOf(heldBytesOf(layer, load), layer, members.length) * missing
}

/** The numbers of a task for candidates. */
export function chainOf(task: Task, candidates: readonly Candidate[]): Chain {
  const [devices, layers] = [candidates.length, task.costs.layers.length]
  const chain: Chain = {
    devices,
    layers,
    seconds: new Float64Array(devices * layers),
    fixed: new Float64Array(devices),
    first: new Int32Array(devices * (layers + 1)),
    hops: new Float64Array(devices * devices * layers),
    moved: new Float64Array(devices * layers),
  }
  for (const [d, candidate] of candidates.entries()) {
    const { members } = candidate
    const link = members.length > 1 ? groupLink(task.fleet, members) : undefined
    for (const [l, layer] of task.costs.layers.entries()) {
      chain.seconds[d * layers + l] = layerSeconds(layer, candidate, task.load, link)
      chain.moved[d * layers + l] = movedOf(task, candidate, l)
    }
    chain.fixed[d] = members.reduce((slowest, { overhead }) => Math.max(slowest, overhead), 0)
    chain.first.set(firstOf(task, candidate, link), d * (layers + 1))
    for (const [e, other] of candidates.entries())
      if (e !== d)
        candidateHops(
          task,
          candidate,
          other,
          chain.hops.subarray((d * devices + e) * layers, (d * devices + e + 1) * layers),
        )
  }
  return chain
}

/** What a solver found: blocks on candidates. */
export interface Solution {
  readonly candidates: readonly Candidate[]
  readonly chain: Chain
  readonly blocks: readonly Block[]
  readonly exact: boolean
}
