// move.ts: whether layers should be moved: what a better placement saves in the work that is left, beside what moving costs.
import { expectKnownOptions, expectNumber } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { objectiveOf } from './chain.js'
import { heldBytesOf, type ModelCosts, shareOf } from './costs.js'
import type { Fleet, FleetDevice } from './fleet.js'
import {
  type Placement,
  type PlaceOptions,
  placementOf,
  placeOptionNames,
  type SolveOptions,
  solve,
  taskOf,
} from './place.js'
import {
  type Candidate,
  type CurrentPlacement,
  chainOf,
  groupLink,
  linkSeconds,
  type Task,
} from './problem.js'

/** Options of {@link shouldMove}. */
export interface MoveOptions extends Omit<PlaceOptions, 'current'> {
  /** Where the layers are: names of the devices that hold each. */
  readonly current: CurrentPlacement
  /** Steps that are still to be done; Infinity for a service that goes on. */
  readonly remainingSteps: number
  /** What must be saved for each second of moving, s. Default: 1.5. */
  readonly hysteresis?: number
  /** Share of a step that must be saved. Default: 0.05. */
  readonly minGain?: number
  /** Of what no device has any more: the disk or the network that weights are read from, bytes/s. Default: 1e9. */
  readonly sourceBandwidth?: number
}

/** Whether to move, and why. */
export interface MoveDecision {
  /** Whether to move. */
  readonly move: boolean
  /** Why, in words. */
  readonly why: string
  /** The best placement. */
  readonly placement: Placement
  /** Seconds of a step where the layers are now; undefined when they cannot stay. */
  readonly currentSeconds: number | undefined
  /** Seconds of a step after moving. */
  readonly newSeconds: number
  /** Seconds until all weights and states are where they should be; devices receive at the same time. */
  readonly moveSeconds: number
}

/**
 * Decides whether to move layers. They move when they cannot stay (a device left, memory or pins have changed), or when the steps that
 * are left save more than `hysteresis` times the seconds of moving and each saves at least `minGain`, so that small changes of measured
 * numbers move nothing.
 * @throws SparkError as {@link place}; ERR_ARGUMENT
 */
export async function shouldMove(
  costs: ModelCosts,
  fleet: Fleet,
  options: MoveOptions,
): Promise<MoveDecision> {
  const { remainingSteps, hysteresis = 1.5, minGain = 0.05, sourceBandwidth = 1e9, ...rest } = options
  expectKnownOptions('options', options, [
    ...placeOptionNames,
    'remainingSteps',
    'hysteresis',
    'minGain',
    'sourceBandwidth',
  ])
  if (remainingSteps !== Number.POSITIVE_INFINITY) expectNumber('remainingSteps', remainingSteps, 0)
  expectNumber('hysteresis', hysteresis, 1)
  expectNumber('minGain', minGain, 0, 1)
  expectNumber('sourceBandwidth', sourceBandwidth, 1)
  const { current } = rest
  if (current.length !== costs.layers.length)
    throw new SparkError(
      'ERR_ARGUMENT',
      `current has ${current.length} layers, the model ${costs.layers.length}`,
    )
  const { task, ...how } = taskOf(costs, fleet, rest)
  const { solution, domain } = await solve(task, how)
  const placement = placementOf(task, how.objective, solution, domain)
  const newSeconds = objectiveOf(solution.chain, solution.blocks, how.objective)
  const moveSeconds = secondsToMove(task, placement, sourceBandwidth)
  const stays = currentSecondsOf(task, how)
  const numbers = { placement, newSeconds, moveSeconds }
  if (typeof stays === 'string') return { ...numbers, move: true, why: stays, currentSeconds: undefined }
  const saved = stays - newSeconds
  const isWorth = saved >= minGain * stays && saved * remainingSteps > hysteresis * moveSeconds
  const share = `${(100 * Math.max(0, saved / stays)).toFixed(1)} % of a step`
  const why = isWorth
    ? `${share} is saved, and moving takes ${moveSeconds.toFixed(1)} s`
    : `${share} would be saved, which is not worth moving for ${moveSeconds.toFixed(1)} s`
  return { ...numbers, move: isWorth, why, currentSeconds: stays }
}

/** Seconds of a step where the layers are, or why they cannot stay there. */
function currentSecondsOf(task: Task, { objective, backends }: SolveOptions): number | string {
  const current = task.current!
  const candidates: Candidate[] = []
  const blocks: { device: number; from: number; end: number }[] = []
  for (const [l, names] of current.entries()) {
    const previous = candidates.at(-1)
    if (previous && previous.name === names.join('+')) {
      blocks[blocks.length - 1]!.end = l + 1
      continue
    }
    const members: FleetDevice[] = []
    for (const name of names) {
      const device = task.fleet.devices.find(each => each.name === name)
      if (!device) return `${name} has left the fleet`
      if (backends && !backends.includes(device.backend))
        return `${name} runs ${device.backend}, which may not be used any more`
      members.push(device)
    }
    if (members.length === 0) return 'layers are nowhere yet'
    if (!groupLink(task.fleet, members))
      return `the devices of ${names.join('+')} cannot reach each other any more`
    candidates.push({ name: names.join('+'), members })
    blocks.push({ device: candidates.length - 1, from: l, end: l + 1 })
  }
  const chain = chainOf(task, candidates)
  for (const { device, from, end } of blocks)
    if (chain.first[device * (chain.layers + 1) + end]! > from)
      return `${candidates[device]!.name} cannot hold its layers any more`
  const seconds = objectiveOf(chain, blocks, objective)
  return Number.isFinite(seconds) ? seconds : 'stages cannot reach each other any more'
}

/** Seconds of the device that receives longest: each layer from the nearest device that has it, or from where weights are read. */
function secondsToMove(task: Task, { stages }: Placement, sourceBandwidth: number): number {
  const { fleet, current, costs, load } = task
  const byName = new Map(fleet.devices.map(device => [device.name, device]))
  let longest = 0
  for (const { devices, from, end } of stages)
    for (const name of devices) {
      let seconds = 0
      for (let l = from; l < end; l++) {
        const holders = current![l]!
        if (holders.includes(name)) continue
        const bytes = shareOf(heldBytesOf(costs.layers[l]!, load), costs.layers[l]!, devices.length)
        let fastest = bytes / sourceBandwidth
        for (const holder of holders) {
          const device = byName.get(holder)
          const link = device && fleet.link(device, byName.get(name)!)
          if (link) fastest = Math.min(fastest, linkSeconds(link, bytes))
        }
        seconds += fastest
      }
      longest = Math.max(longest, seconds)
    }
  return longest
}
