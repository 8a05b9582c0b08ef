// live-fleet.ts: the machines of a running cluster as a fleet that layers can be put on, with what was measured of them.
import type { DeviceRecord } from '../devices/device-record.js'
import { thermalHeadroom } from '../devices/pressure.js'
import type { DeviceEntry, FleetFile, LinkSpec, NodeEntry } from '../placement/fleet-file.js'
import type { ClusterState, NodeState } from './cluster-state.js'

/** A fleet, and what is not in it. */
export interface LiveFleet {
  /** What {@link readFleet} takes. */
  readonly fleet: FleetFile
  /** Devices and links that are left out, and why. */
  readonly leftOut: readonly string[]
  /** Ids of the nodes by their names in the fleet. */
  readonly nodeIds: ReadonlyMap<string, string>
}

/**
 * The nodes that are online, their devices whose rates were measured, and the measured links between them. Memory that is used
 * now is reserved, and what a hot device computes is scaled by {@link thermalHeadroom}. A link is fabric where both of its nodes have
 * declared its network as that: a machine does not know whether its cable is trusted.
 * @returns what `readFleet` reads
 */
export function fleetOf(state: ClusterState): LiveFleet {
  const leftOut: string[] = []
  const names = namesOf(state.nodes.filter(({ isOnline }) => isOnline))
  const nodes: NodeEntry[] = []
  for (const [id, name] of names) {
    const { pressure } = state.nodes.find(node => node.id === id)!
    if (pressure === 'paused') {
      leftOut.push(`${name}: it pauses under pressure`)
      continue
    }
    const own = state.devices.filter(({ nodeId, state }) => nodeId === id && state !== 'offline')
    const devices = own.flatMap(device => {
      const reason = reasonAgainst(device, own)
      if (reason !== undefined) leftOut.push(`${device.model} of ${name}: ${reason}`)
      return reason === undefined ? [entryOf(device)] : []
    })
    if (devices.length > 0) nodes.push({ name, devices })
  }
  const included = new Set(nodes.map(({ name }) => name))
  const links: (LinkSpec & { between: [string, string] })[] = []
  const ids = [...names].filter(([, name]) => included.has(name))
  for (const [i, [a, from]] of ids.entries())
    for (const [b, to] of ids.slice(i + 1)) {
      const link = linkBetween(state, a, b)
      if (link) links.push({ between: [from, to], ...link })
      else leftOut.push(`the link between ${from} and ${to}: it was not measured`)
    }
  return { fleet: { nodes, links }, leftOut, nodeIds: new Map(ids.map(([id, name]) => [name, id])) }
}

/** Names that fleet.json takes, each of them once. */
function namesOf(nodes: readonly NodeState[]): Map<string, string> {
  const taken = new Set<string>()
  return new Map(
    nodes.map(({ id, name }) => {
      const plain = name.replace(/[^\w.-]/g, '-') || 'node'
      let unique = plain
      for (let i = 2; taken.has(unique); i++) unique = `${plain}-${i}`
      taken.add(unique)
      return [id, unique]
    }),
  )
}

function reasonAgainst(device: DeviceRecord, own: readonly DeviceRecord[]): string | undefined {
  const { kind, rates, memoryBytes, backends } = device
  const sharesItsMemory = own.some(each => each.kind === 'gpu' && each.sharesHostMemory && each.rates)
  if (kind === 'cpu' && sharesItsMemory) return 'its memory is that of the GPU'
  if (backends.length === 0) return 'no backend computes on it'
  if (memoryBytes === undefined) return 'its memory is not known'
  if (rates?.bandwidth === undefined || Object.keys(rates.flops).length === 0)
    return 'its rates were not measured yet'
  if (headroomOf(device) === 0) return `it has ${device.telemetry!.temperature} °C`
  return undefined
}

function entryOf(device: DeviceRecord): DeviceEntry {
  const { id, memoryBytes, rates, backends, telemetry } = device
  const headroom = headroomOf(device)
  const flops = Object.entries(rates!.flops).map(([dtype, rate]) => [dtype, rate * headroom])
  return {
    ...{ name: id.replace(/[^\w.-]/g, '-'), backend: backends[0]!.name, memory: memoryBytes! },
    ...{ reserve: telemetry?.memoryUsed ?? 0, bandwidth: rates!.bandwidth! },
    flops: Object.fromEntries(flops),
  }
}

const headroomOf = ({ telemetry }: DeviceRecord): number =>
  telemetry?.temperature === undefined ? 1 : thermalHeadroom(telemetry.temperature)

/** The slower direction counts. */
function linkBetween({ routes }: ClusterState, a: string, b: string): LinkSpec | undefined {
  const both = routes.filter(({ from, to }) => (from === a && to === b) || (from === b && to === a))
  const trips = both.flatMap(({ rttMs }) => rttMs ?? [])
  const rates = both.flatMap(({ bytesPerSecond }) => bytesPerSecond ?? [])
  if (trips.length === 0 || rates.length === 0) return undefined
  const isFabric = both.length === 2 && both.every(({ fabric }) => fabric)
  return {
    ...{ latency: Math.max(...trips) / 2000, bandwidth: Math.min(...rates) },
    ...(isFabric && { fabric: true }),
  }
}
