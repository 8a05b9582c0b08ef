// place.ts: puts the layers of a model on the devices of a fleet.
import { expectInteger, expectKnownOptions, expectOneOf } from '../../core/checks.js'
import {
  blockSeconds,
  bottleneckOf,
  hopSeconds,
  latencyOf,
  movedBytes,
  type Objective,
  objectiveOf,
} from './chain.js'
import { type Domain, explainInfeasible, InfeasibleError, pruneDomain } from './constraints.js'
import { type ModelCosts, prefillFlopsOf, shareOf } from './costs.js'
import { maxExactDevices, solveExactly } from './dynamic-programming.js'
import { type Fleet, type FleetDevice, flopRate } from './fleet.js'
import { readPins } from './pins.js'
import {
  allReduceSeconds,
  blockBytes,
  type Candidate,
  type CurrentPlacement,
  candidateBytes,
  candidateHops,
  chainOf,
  groupLink,
  type Solution,
  type Task,
} from './problem.js'
import { groupings, single } from './tensor-groups.js'

/** Options of {@link place}. */
export interface PlaceOptions {
  /** Time of a step for one stream, or the steps a second when all stages are busy. Default: latency. */
  readonly objective?: Objective
  /** Tokens that keys and values are kept of. Default: 8192, or fewer where the model was made for fewer. */
  readonly context?: number
  /** Sequences of a step. Default: 1. */
  readonly batch?: number
  /**
   * Sequences whose keys and values memory holds: k stages that are all busy with other sequences need k times those of a step.
   * Default: `batch`.
   */
  readonly sequences?: number
  /** Layers on a node or device, such as `0-10=spark-1`. */
  readonly pins?: readonly string[]
  /** Backends that may be used. Default: all. */
  readonly backends?: readonly string[]
  /** Whether groups of devices may share layers. Default: true. */
  readonly tensorParallel?: boolean
  /** Where the layers are now: between equals the placement that moves the fewest bytes is taken. */
  readonly current?: CurrentPlacement
}

/** Neighbouring layers on a device, or on devices that share each of them. */
export interface Stage {
  /** Names of its devices. */
  readonly devices: readonly string[]
  /** First layer, an index of {@link ModelCosts.layers}. */
  readonly from: number
  /** One behind the last layer. */
  readonly end: number
  /** Seconds that it computes in a step. */
  readonly seconds: number
  /** Seconds until it has what the stage before it made; 0 for the first. */
  readonly hopSeconds: number
  /** Bytes that each of its devices needs: weights, keys and values, workspace. */
  readonly bytes: number
  /** Bytes that each of its devices has for models. */
  readonly freeBytes: number
}

/** Where the layers of a model are. */
export interface Placement {
  /** What it is the best for. */
  readonly objective: Objective
  /** First to last. */
  readonly stages: readonly Stage[]
  /** Seconds of a step through all stages: of a token of a language model, of a run of another. */
  readonly latency: number
  /** Seconds of the slowest stage or link: with all stages busy a step ends this often. */
  readonly bottleneck: number
  /** Seconds until the first token of a prompt as long as the context; undefined for what is no language model. */
  readonly promptSeconds: number | undefined
  /** Bytes that are moved from the current placement; 0 without one. */
  readonly movedBytes: number
  /** Whether no placement on single devices and the groups that were formed is better; else a model of equal layers found it. */
  readonly exact: boolean
  /** Devices that have no layers, and why as far as constraints say it. */
  readonly unused: readonly {
    /** Its name. */
    readonly device: string
    /** In words. */
    readonly why: string | undefined
  }[]
  /** Tokens and sequences that memory and times are of. */
  readonly load: Task['load']
}

const usualContext = 8192

/**
 * Puts the layers of a model on devices, in any order and on any subset of them. To 10 devices, or groups of devices that share layers,
 * the placement is the best there is (dynamic programming); beyond it needs the package `highs`.
 *
 * The seconds of a layer are max(bytes / bandwidth, arithmetic / rate); a stage adds those of its layers, and what goes from a stage to
 * the next takes latency + bytes / bandwidth of their link. The token that comes out last and is read first, four bytes, is not counted.
 *
 * Distribution cannot help where a model fits on the fastest device and one stream is served: each token goes through all layers, one
 * after the other, so a second stage on a slower device, or behind a link, makes it later. The placement then has one stage. What helps
 * are devices that together hold what none holds alone, the objective throughput, and groups that share layers over a fast link.
 * @param costs - of {@link modelCosts}
 * @param fleet - of {@link readFleet}
 * @throws SparkError ERR_ARGUMENT; {@link InfeasibleError} naming the constraint that fails; ERR_UNSUPPORTED without `highs`
 */
export async function place(costs: ModelCosts, fleet: Fleet, options: PlaceOptions = {}): Promise<Placement> {
  const { task, objective, backends, tensorParallel } = taskOf(costs, fleet, options)
  const { solution, domain } = await solve(task, { objective, backends, tensorParallel })
  return placementOf(task, objective, solution, domain)
}

/** How a task is solved. */
export interface SolveOptions {
  readonly objective: Objective
  readonly backends: readonly string[] | undefined
  readonly tensorParallel: boolean
}

/** Names of the options of {@link place}. */
export const placeOptionNames: readonly (keyof PlaceOptions)[] = [
  'objective',
  'context',
  'batch',
  'sequences',
  'pins',
  'backends',
  'tensorParallel',
  'current',
]

/**
 * Checks options, and gives them their defaults.
 * @throws SparkError ERR_ARGUMENT
 */
export function taskOf(
  costs: ModelCosts,
  fleet: Fleet,
  options: PlaceOptions,
): { task: Task } & SolveOptions {
  expectKnownOptions('options', options, placeOptionNames)
  const { objective = 'latency', batch = 1, pins = [], backends, tensorParallel = true, current } = options
  const { context = Math.min(usualContext, costs.contextLength ?? usualContext) } = options
  expectOneOf('objective', objective, ['latency', 'throughput'])
  expectInteger('context', context, 1, 1e9)
  expectInteger('batch', batch, 1, 1e6)
  const { sequences = batch } = options
  expectInteger('sequences', sequences, batch, 1e6)
  const task = {
    costs,
    fleet,
    load: { context, batch, sequences },
    pins: readPins(pins, costs, fleet),
    current,
  }
  return { task, objective, backends, tensorParallel }
}

/**
 * The best of all ways to divide the fleet into groups.
 * @throws InfeasibleError
 */
export async function solve(
  task: Task,
  options: SolveOptions,
): Promise<{ solution: Solution; domain: Domain }> {
  const { objective, backends, tensorParallel } = options
  const alone = task.fleet.devices.map(single)
  const domain = pruneDomain(task, alone, backends)
  const devices = task.fleet.devices.filter(device => !backends || backends.includes(device.backend))
  const ways = tensorParallel ? groupings(task, devices, maxExactDevices) : [devices.map(single)]
  let best: Solution | undefined
  let exact = true
  for (const way of ways) {
    const { usable } = pruneDomain(task, way, backends)
    const found = await solveCandidates(task, usable, objective)
    exact &&= usable.length <= maxExactDevices
    if (found && (!best || isBetter(found, best, objective))) best = found
  }
  if (best) return { solution: { ...best, exact }, domain }
  const feasible = async (relaxed: Task, candidates: readonly Candidate[]): Promise<boolean> =>
    (await solveCandidates(relaxed, candidates, 'latency')) !== undefined
  throw new InfeasibleError(await explainInfeasible(task, alone, domain, feasible))
}

/** Times that differ by less are equal. */
const sameTime = 1e-9

function isBetter(a: Solution, b: Solution, objective: Objective): boolean {
  const [own, other] = [objectiveOf(a.chain, a.blocks, objective), objectiveOf(b.chain, b.blocks, objective)]
  if (Math.abs(own - other) > sameTime * other) return own < other
  const [moved, otherMoved] = [movedBytes(a.chain, a.blocks), movedBytes(b.chain, b.blocks)]
  if (moved !== otherMoved) return moved < otherMoved
  return latencyOf(a.chain, a.blocks) < (1 - sameTime) * latencyOf(b.chain, b.blocks)
}

/** The best placement on candidates; undefined when none fits. */
export async function solveCandidates(
  task: Task,
  candidates: readonly Candidate[],
  objective: Objective,
): Promise<Solution | undefined> {
  if (candidates.length > maxExactDevices) {
    const { solveMany } = await import('./milp.js')
    return solveMany(task, candidates, objective)
  }
  const chain = chainOf(task, candidates)
  const blocks = solveExactly(chain, objective)
  return blocks && { candidates, chain, blocks, exact: true }
}

/** The stages of a solution, with their numbers. */
export function placementOf(
  task: Task,
  objective: Objective,
  solution: Solution,
  { out }: Domain,
): Placement {
  const { candidates, chain, blocks, exact } = solution
  const used = new Set(blocks.flatMap(({ device }) => candidates[device]!.members.map(({ name }) => name)))
  return {
    objective,
    stages: blocks.map((block, i) => {
      const { device, from, end } = block
      const { members } = candidates[device]!
      return {
        ...{ devices: members.map(({ name }) => name), from, end },
        seconds: blockSeconds(chain, block),
        hopSeconds: hopSeconds(chain, blocks, i),
        bytes: blockBytes(task, members.length, from, end),
        freeBytes: candidateBytes(candidates[device]!),
      }
    }),
    latency: latencyOf(chain, blocks),
    bottleneck: bottleneckOf(chain, blocks),
    promptSeconds: task.costs.kind === 'language' ? promptSeconds(task, solution) : undefined,
    movedBytes: movedBytes(chain, blocks),
    exact,
    unused: task.fleet.devices
      .filter(({ name }) => !used.has(name))
      .map(({ name }) => ({ device: name, why: out.find(({ device }) => device === name)?.message })),
    load: task.load,
  }
}

/**
 * Arithmetic of a prompt as long as the context, or reading the weights, on one stage after the other, all-reduces in groups, and what
 * is sent between stages, of all its tokens.
 */
function promptSeconds(task: Task, { candidates, blocks }: Solution): number {
  const { costs, load } = task
  const whole = { ...task, load: { ...load, batch: load.batch * load.context } }
  const hops = new Float64Array(costs.layers.length)
  let sum = 0
  for (const [i, { device, from, end }] of blocks.entries()) {
    const { members } = candidates[device]!
    const link = members.length > 1 ? groupLink(task.fleet, members) : undefined
    sum += members.reduce((slowest, { overhead }) => Math.max(slowest, overhead), 0)
    for (const layer of costs.layers.slice(from, end)) {
      const flops = prefillFlopsOf(layer, load.context)
      const secondsOf = (member: FleetDevice): number => {
        let computing = 0
        for (const [dtype, count] of flops)
          computing += (load.batch * count) / members.length / flopRate(member, dtype)
        const read = shareOf(layer.weightBytes - layer.idleBytes, layer, members.length)
        return Math.max(computing, read / member.bandwidth)
      }
      sum += members.reduce((slowest, member) => Math.max(slowest, secondsOf(member)), 0)
      const bytes = layer.cutBytes * load.batch * (layer.lastTokenOnly ? 1 : load.context)
      if (link) sum += layer.allReduces * allReduceSeconds(link, members.length, bytes)
    }
    if (i === 0) continue
    candidateHops(whole, candidates[blocks[i - 1]!.device]!, candidates[device]!, hops)
    sum += hops[from]!
  }
  return sum
}
