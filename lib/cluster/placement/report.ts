// report.ts: why a placement is as it is: what would help most, and why devices were left out.
import { blockSeconds, hopSeconds, type Objective, objectiveOf } from './chain.js'
import { gigabytes } from './constraints.js'
import type { ModelCosts } from './costs.js'
import { maxExactDevices, solveExactly } from './dynamic-programming.js'
import type { Fleet, FleetDevice, LinkSpec } from './fleet.js'
import { solveInOrder } from './ordered.js'
import { type Placement, type PlaceOptions, placementOf, solve, taskOf } from './place.js'
import { type Candidate, chainOf, type Network, type Solution, type Task } from './problem.js'

/** One thing changed, and what the placement would be then. */
export interface Help {
  /** What is changed, such as `twice the memory of spark-1 (128 GB more)`. */
  readonly change: string
  /** The objective then, seconds. */
  readonly seconds: number
  /** The share of the objective that is saved, from 0 to 1. */
  readonly gain: number
}

/** A placement and why it is as it is. */
export interface PlacementReport {
  /** The best placement. */
  readonly placement: Placement
  /** Changes that help, the most helpful first. */
  readonly helps: readonly Help[]
  /** Devices that have no layers, and why. */
  readonly unused: readonly {
    /** Its name. */
    readonly device: string
    /** In words. */
    readonly why: string
  }[]
}

/** Changes that are listed, and the share that one must save. */
const [maxHelps, minGain] = [5, 0.005]

/** Devices without layers that are changed, and stages and links where there are many. */
const [maxOthers, maxSlow] = [2, 3]

/**
 * Places as {@link place} does, and solves again with one thing changed at a time: twice the memory, bandwidth or FLOP rate of a device,
 * one more of a device, ten times as fast a link, no pins. Devices that were left out are forced in to see what they would cost.
 * @throws SparkError as {@link place}
 */
export async function reportPlacement(
  costs: ModelCosts,
  fleet: Fleet,
  options: PlaceOptions = {},
): Promise<PlacementReport> {
  const { task, ...how } = taskOf(costs, fleet, options)
  const { solution, domain } = await solve(task, how)
  const placement = placementOf(task, how.objective, solution, domain)
  const value = objectiveOf(solution.chain, solution.blocks, how.objective)
  return {
    placement,
    helps: helpsOf(task, solution, how.objective, value),
    unused: placement.unused.map(({ device, why }) => ({
      device,
      why: why ?? whyUnused(task, solution, device, how.objective, value),
    })),
  }
}

/** Seconds as people read them: 12.3 ms. */
export function milliseconds(seconds: number): string {
  if (seconds >= 1) return `${seconds.toFixed(2)} s`
  return seconds >= 1e-4 ? `${(1e3 * seconds).toPrecision(4)} ms` : `${(1e6 * seconds).toPrecision(4)} µs`
}

function whyUnused(
  task: Task,
  solution: Solution,
  device: string,
  objective: Objective,
  value: number,
): string {
  const { candidates, chain } = solution
  const own = candidates.findIndex(({ members }) => members.some(({ name }) => name === device))
  const step = objective === 'latency' ? 'a step' : 'the slowest stage'
  if (own < 0) return `the stages do not need it: ${step} takes ${milliseconds(value)} without it`
  if (candidates.length > maxExactDevices)
    return `of ${candidates.length} devices those that were chosen are enough`
  const forced = solveExactly(chain, objective, 1 << own)
  if (!forced) return 'no placement that has it meets all constraints'
  const seconds = objectiveOf(chain, forced, objective)
  if (seconds <= value * (1 + 1e-6))
    return `nothing is gained with it: ${step} takes ${milliseconds(value)} either way`
  const percent = 100 * (seconds / value - 1)
  const more = `${percent < 10 ? percent.toPrecision(2) : Math.round(percent)} % more`
  const fits =
    solution.blocks.length === 1
      ? `; ${task.costs.name} fits on ${candidates[solution.blocks[0]!.device]!.name}`
      : ''
  return `with it ${step} would take ${milliseconds(seconds)} instead of ${milliseconds(value)}, ${more}${fits}`
}

/** A task with one thing changed. */
interface Change {
  readonly text: string
  readonly task: Task
  readonly candidates: readonly Candidate[]
}

/**
 * Solves each change with the devices of the stages and some of the others, in the groups that were chosen. Where there are more stages
 * than an exact solution has devices, changes are of the slowest stages, and the order of the devices stays.
 */
function helpsOf(task: Task, solution: Solution, objective: Objective, value: number): Help[] {
  const helps: Help[] = []
  for (const { text, task: changed, candidates } of changes(task, solution)) {
    const chain = chainOf(changed, candidates)
    const isFew = candidates.length <= maxExactDevices
    const blocks = isFew ? solveExactly(chain, objective) : solveInOrder(chain, objective)
    if (!blocks) continue
    const seconds = objectiveOf(chain, blocks, objective)
    const gain = 1 - seconds / value
    if (gain >= minGain) helps.push({ change: text, seconds, gain })
  }
  return helps.sort((a, b) => b.gain - a.gain).slice(0, maxHelps)
}

function* changes(task: Task, { candidates: all, chain, blocks }: Solution): Generator<Change> {
  const used = blocks.map(({ device }) => all[device]!)
  const others = all.filter(candidate => !used.includes(candidate))
  const isFew = used.length < maxExactDevices
  const candidates = isFew ? [...used, ...others].slice(0, maxExactDevices - 1) : used
  const seconds = blocks.map(block => blockSeconds(chain, block))
  const hops = blocks.map((_, i) => hopSeconds(chain, blocks, i))
  const changed = isFew ? candidates.slice(0, used.length + maxOthers) : slowest(used, seconds, maxSlow)
  for (const candidate of changed) yield* deviceChanges(task, candidates, candidate)
  const pairs = used.slice(1).map((to, i) => [used[i]!, to] as const)
  for (const pair of slowest(pairs, hops.slice(1), maxSlow)) yield fasterLink(task, candidates, ...pair)
  if (isFew)
    for (const other of others.slice(0, maxOthers)) yield fasterLink(task, candidates, used.at(-1)!, other)
  if (task.pins.length > 0) yield { text: 'no pins', task: { ...task, pins: [] }, candidates }
}

/** The items with the largest numbers. */
function slowest<Item>(items: readonly Item[], seconds: readonly number[], count: number): Item[] {
  const order = items.map((_, i) => i).sort((a, b) => seconds[b]! - seconds[a]!)
  return order.slice(0, count).map(i => items[i]!)
}

function* deviceChanges(
  task: Task,
  candidates: readonly Candidate[],
  candidate: Candidate,
): Generator<Change> {
  const changedTo = (text: string, change: (device: FleetDevice) => FleetDevice): Change => {
    const changed = { ...candidate, members: candidate.members.map(change) }
    return { text, task, candidates: candidates.map(each => (each === candidate ? changed : each)) }
  }
  const { name, members } = candidate
  const more = gigabytes(members.reduce((sum, { memory }) => sum + memory, 0))
  yield changedTo(`twice the memory of ${name} (${more} more)`, device => ({
    ...device,
    memory: 2 * device.memory,
  }))
  yield changedTo(`twice the memory bandwidth of ${name}`, device => ({
    ...device,
    bandwidth: 2 * device.bandwidth,
  }))
  yield changedTo(`twice the FLOP rate of ${name}`, device => ({ ...device, flops: doubled(device.flops) }))
  if (members.length === 1) yield another(task, candidates, candidate)
}

const doubled = (flops: FleetDevice['flops']): FleetDevice['flops'] =>
  Object.fromEntries(Object.entries(flops).map(([dtype, rate]) => [dtype, 2 * rate]))

const alike = (fleet: Network): Network => ({
  devices: fleet.devices,
  link: (from, to) => fleet.link(from, to),
  linkClass: node => fleet.linkClass(node),
})

/** One more of a device, linked as the first is; to the first as that is to the nearest other. */
function another(task: Task, candidates: readonly Candidate[], candidate: Candidate): Change {
  const { fleet } = task
  const device = candidate.members[0]!
  const twin = { ...device, name: `another ${device.name}` }
  const nearest = fleet.devices
    .filter(other => other.name !== device.name)
    .flatMap(other => fleet.link(device, other) ?? [])
    .reduce((a: LinkSpec | undefined, b) => (a && a.latency <= b.latency ? a : b), undefined)
  const link: Network['link'] = (from, to) => {
    const isTwin = from.name === twin.name || to.name === twin.name
    const isBetween = isTwin && (from.name === device.name || to.name === device.name)
    return isBetween && nearest ? nearest : fleet.link(from, to)
  }
  const network = { ...alike(fleet), devices: [...fleet.devices, twin], link }
  const added = { name: twin.name, members: [twin] }
  return {
    text: `one more of ${device.name}`,
    task: { ...task, fleet: network },
    candidates: candidates.flatMap(each => (each === candidate ? [each, added] : [each])),
  }
}

/** Ten times as fast a link between the nodes of two candidates. */
function fasterLink(task: Task, candidates: readonly Candidate[], one: Candidate, other: Candidate): Change {
  const [a, b] = [one.members[0]!.node, other.members[0]!.node]
  const link: Network['link'] = (from, to) => {
    const found = task.fleet.link(from, to)
    const isThis = (from.node === a && to.node === b) || (from.node === b && to.node === a)
    return found && isThis
      ? { ...found, latency: found.latency / 10, bandwidth: 10 * found.bandwidth }
      : found
  }
  const text = `a link ten times as fast between ${a} and ${b}`
  return { text, task: { ...task, fleet: { ...alike(task.fleet), link } }, candidates }
}
