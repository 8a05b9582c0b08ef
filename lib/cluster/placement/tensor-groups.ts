// tensor-groups.ts: groups of devices that share each layer, as virtual devices, and the ways to divide a fleet into them.
import { SparkError } from '../../core/errors.js'
import { InfeasibleError } from './constraints.js'
import type { FleetDevice } from './fleet.js'
import { type Candidate, groupLink, linkInGroup, type Task } from './problem.js'

/** Sizes of groups. */
const groupSizes = [2, 4, 8] as const

/** The longest latency of a link in a group, seconds: two all-reduces a layer wait for it. */
export const maxGroupLatency = 1e-3

/** Ways to divide a fleet that are looked at. */
const maxGroupings = 256

/** Devices behind one in the fleet that it may form a group with. */
const neighbours = 63

/** A device alone. */
export const single = (device: FleetDevice): Candidate => ({ name: device.name, members: [device] })

const groupOf = (members: readonly FleetDevice[]): Candidate => ({
  name: members.map(({ name }) => name).join('+'),
  members,
})

/**
 * Whether devices can share layers: one backend and one kind of device, a size that divides heads, heads of keys and values, and the
 * hidden size, and links between all of them that are trusted fabric and at most {@link maxGroupLatency} long.
 */
export function canShare({ costs, fleet }: Task, members: readonly FleetDevice[]): boolean {
  const { divisible } = costs
  const size = members.length
  if (!divisible) return false
  const { heads, kvHeads, hiddenSize } = divisible
  if ([heads, kvHeads, hiddenSize].some(count => count % size !== 0)) return false
  if (!members.every(member => areAlike(member, members[0]!))) return false
  const link = groupLink(fleet, members)
  return link !== undefined && link.fabric === true && link.latency <= maxGroupLatency
}

/** Devices are alike where they run the same, and what was measured of one is at most so many times that of the other. */
const alikeRates = 1.25

/** Whether devices are of one kind: backend, operators, and about the same memory and rates. Headroom and reserve may differ. */
function areAlike(a: FleetDevice, b: FleetDevice): boolean {
  if (a === b) return true
  if (runsOf(a) !== runsOf(b)) return false
  const isNear = (x: number, y: number): boolean => x <= alikeRates * y && y <= alikeRates * x
  const dtypes = Object.keys(a.flops)
  return (
    isNear(a.memory, b.memory) &&
    isNear(a.bandwidth, b.bandwidth) &&
    dtypes.every(dtype => isNear(a.flops[dtype]!, b.flops[dtype]!))
  )
}

/** What a device runs, as a text. */
function runsOf(device: FleetDevice): string {
  const known = runs.get(device)
  if (known !== undefined) return known
  const { backend, flops, operators } = device
  const text = JSON.stringify([backend, Object.keys(flops).sort(), operators])
  runs.set(device, text)
  return text
}

const runs = new WeakMap<FleetDevice, string>()

/**
 * Ways to divide devices into groups and single devices; the first has singles only. A device forms a group with the devices behind it
 * in the fleet that it can share layers with, nearest first, so equal devices are not tried in each order. Of fleets of more than
 * `maxCandidates` devices each kind is divided into groups of one size.
 */
export function groupings(task: Task, devices: readonly FleetDevice[], maxCandidates: number): Candidate[][] {
  const pinned = pinnedGroups(task, devices)
  if (pinned.length > 0) {
    const used = new Set(pinned.flatMap(({ members }) => members))
    const others = devices.filter(device => !used.has(device))
    const pins = task.pins.filter(({ target }) => !target.includes('+'))
    const ways = groupings({ ...task, pins }, others, maxCandidates - pinned.length)
    return ways.map(way => [...pinned, ...way])
  }
  const alone = devices.map(single)
  if (!task.costs.divisible) return [alone]
  if (devices.length > maxCandidates)
    return [alone, ...groupSizes.flatMap(size => wholeGrouping(task, devices, size) ?? [])]
  const found = new Map<string, Candidate[]>()
  divide(task, devices, [], found)
  return [...found.values()]
}

/**
 * Groups that the user put layers on, whose devices need not be alike.
 * @throws SparkError ERR_ARGUMENT for a device that is there twice; {@link InfeasibleError} for devices that cannot share layers
 */
function pinnedGroups(task: Task, devices: readonly FleetDevice[]): Candidate[] {
  const targets = new Set(task.pins.map(({ target }) => target).filter(target => target.includes('+')))
  if (!task.costs.divisible) return []
  const targetOf = new Map<FleetDevice, string>()
  return [...targets].map(target => {
    const members = target.split('+').map(part => {
      const device = devices.find(({ name, node }) => name === part || node === part)
      if (!device) throw notShared('backend', target, `${part} has none of the backends that may be used`)
      const other = targetOf.get(device)
      if (other !== undefined) throw usedTwice(device, target, other)
      targetOf.set(device, target)
      return device
    })
    checkPinned(task, target, members)
    return groupOf(members)
  })
}

function usedTwice({ name }: FleetDevice, target: string, other: string): SparkError {
  const where = other === target ? `twice in '${target}'` : `in '${other}' and in '${target}'`
  return new SparkError('ERR_ARGUMENT', `pins: ${name} is ${where}, and a device is in one group, once`)
}

const notShared = (kind: 'backend' | 'operator' | 'link', target: string, why: string): InfeasibleError =>
  new InfeasibleError({ kind, message: `'${target}' cannot share layers: ${why}` })

/** @throws InfeasibleError for a size that heads are not divisible by, and for links that are missing or no trusted fabric */
function checkPinned({ costs, fleet }: Task, target: string, members: readonly FleetDevice[]): void {
  // What a size does not divide of a model that is no language model stays whole.
  const sizes = costs.kind === 'language' ? Object.entries(costs.divisible!) : []
  const odd = sizes.find(([, count]) => count % members.length !== 0)
  if (odd) throw notShared('operator', target, `${odd[0]} of ${odd[1]} is not divisible by ${members.length}`)
  for (const [i, a] of members.entries())
    for (const b of members.slice(i + 1)) {
      const link = linkInGroup(fleet, a, b)
      if (!link) throw notShared('link', target, `no link joins ${a.name} and ${b.name}`)
      if (link.fabric !== true)
        throw notShared('link', target, `the link of ${a.name} and ${b.name} is no trusted fabric`)
    }
}

function divide(
  task: Task,
  left: readonly FleetDevice[],
  made: readonly Candidate[],
  found: Map<string, Candidate[]>,
): void {
  const [device, ...rest] = left
  if (!device) {
    const key = made
      .map(({ name }) => name)
      .sort()
      .join(' ')
    if (found.size < maxGroupings) found.set(key, [...made])
    return
  }
  divide(task, rest, [...made, single(device)], found)
  for (const size of groupSizes) {
    const members = nearest(task, device, rest, size)
    if (!members || found.size >= maxGroupings) continue
    divide(
      task,
      rest.filter(each => !members.includes(each)),
      [...made, groupOf(members)],
      found,
    )
  }
}

/** A device and those that it can share layers with, nearest first. */
function nearest(
  task: Task,
  device: FleetDevice,
  others: readonly FleetDevice[],
  size: number,
): FleetDevice[] | undefined {
  const latency = (other: FleetDevice): number =>
    linkInGroup(task.fleet, device, other)?.latency ?? Number.POSITIVE_INFINITY
  const alike = others
    .slice(0, neighbours)
    .filter(other => areAlike(other, device) && latency(other) <= maxGroupLatency)
  if (alike.length < size - 1) return undefined
  const members = [device, ...alike.sort((a, b) => latency(a) - latency(b)).slice(0, size - 1)]
  return canShare(task, members) ? members : undefined
}

/** All devices in groups of a size, where they can; undefined when no group can be made. */
function wholeGrouping(task: Task, devices: readonly FleetDevice[], size: number): Candidate[][] | undefined {
  const made: Candidate[] = []
  let left = devices
  while (left.length > 0) {
    const [device, ...rest] = left
    const members = nearest(task, device!, rest, size)
    made.push(members ? groupOf(members) : single(device!))
    const used = new Set(members ?? [device!])
    left = left.filter(each => !used.has(each))
  }
  return made.some(({ members }) => members.length > 1) ? [made] : undefined
}
